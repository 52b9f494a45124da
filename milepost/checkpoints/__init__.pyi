"""The public names of milepost.checkpoints. Each is listed here once, and imported when it is first used."""

from milepost.checkpoints.diagnosis.diagnose import Diagnosis as Diagnosis
from milepost.checkpoints.diagnosis.diagnose import diagnose as diagnose
from milepost.checkpoints.extension.extend import Extension as Extension
from milepost.checkpoints.extension.extend import extend as extend
from milepost.checkpoints.gguf_parity.compare_gguf import GgufParity as GgufParity
from milepost.checkpoints.gguf_parity.compare_gguf import compare_gguf as compare_gguf
from milepost.checkpoints.inspection.inspect import Inspection as Inspection
from milepost.checkpoints.inspection.inspect import inspect as inspect
from milepost.checkpoints.layout_conversion.convert_layout import Conversion as Conversion
from milepost.checkpoints.layout_conversion.convert_layout import convert_layout as convert_layout
from milepost.checkpoints.layout_conversion.proof import ProofError as ProofError
from milepost.checkpoints.migration.migrate import Migration as Migration
from milepost.checkpoints.migration.migrate import migrate as migrate
from milepost.checkpoints.model.engine_attention import use_engine as use_engine
from milepost.checkpoints.model.load import load as load
from milepost.checkpoints.model.loaded import Loaded as Loaded
from milepost.checkpoints.model.text import read_text as read_text
from milepost.checkpoints.recommendation.recommend import Recommendation as Recommendation
from milepost.checkpoints.recommendation.recommend import recommend as recommend
from milepost.checkpoints.resizing.resize import Resized as Resized
from milepost.checkpoints.resizing.resize import resize as resize
from milepost.checkpoints.verification.verify import Verification as Verification
from milepost.checkpoints.verification.verify import verify as verify
