"""convert_layout: a checkpoint whose rotary pairs are halves as one with interleaved pairs, or back."""
