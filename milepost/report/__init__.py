"""Reports: results drawn as self-contained pages. Nothing is computed here, and no torch is imported."""
