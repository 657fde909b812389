"""The bias mathematics: pure functions of tensors, and nothing else.

No variables, no Keras, no TF-Ranking and no hidden randomness in here. Every
function takes and returns tensors of one floating dtype, so that tests can run
them in float64 and training in float32.
"""
