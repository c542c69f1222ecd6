"""Streaming metrics of recommenders in pure numpy: mergeable states, and values read from them.

Update the states with predictions that the model made before it trained on the same examples (the
prequential evaluation of Gama et al. 2013: test, then train). Every example of an endless stream is
then a test example. Do not read a state in one thread while another thread updates it: read a copy.
"""
