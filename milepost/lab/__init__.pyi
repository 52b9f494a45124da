from milepost.lab.checkpoint import load as load
