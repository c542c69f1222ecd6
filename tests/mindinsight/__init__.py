"""Our records through MindInsight 2.3.1, in its own Python 3.9 environment."""
