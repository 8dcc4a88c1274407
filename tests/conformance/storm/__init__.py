"""Small models of Storm's components, from what is known of their behaviour, and random vectors.

Nothing here knows the product, or an adapter. Each module draws a vector of the format from a
seed: ops at random, and what the model says after each. A `strict` vector has only ops at which
the original and we do the same, so that it has to pass; another one has any op.
"""
