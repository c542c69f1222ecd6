"""Streaming recommender metrics, pure numpy: small mergeable states and what is read from them.

Feed them predictions made before the model learned from the same examples (test, then train: the
prequential evaluation of Gama et al. 2013), and every example of an endless stream is a test
example. A state is not safe to read in one thread while another updates it: copy it first.
"""
