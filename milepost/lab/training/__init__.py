"""What training is made of, beside its loop (lab/train): which optimizer moves what, and products of bfloat16."""
