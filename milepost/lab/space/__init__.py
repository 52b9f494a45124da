"""The lab in space: images, and signals of three and four axes, read by an encoder that is told where each token is."""
