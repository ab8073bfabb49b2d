"""The wiki: pages as files, and their history in git. The only package that imports pygit2."""
