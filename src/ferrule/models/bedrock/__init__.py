"""Models on Amazon Bedrock, through its Converse API (`pip install 'ferrule[bedrock]'`).

Modules: `answers`, `aws`, `client`.
"""
