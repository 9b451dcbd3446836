"""The checkpoint on disk: what is true, who owns it, and that it stays true.

``checkpoint`` is intent, commit and recovery, over ``epoch_log`` (the log, and how it is known that
nothing is missing). ``storage`` is what an epoch asks of it. ``lease`` says who owns it,
``processes`` whether an owner is still alive, ``gate`` keeps out what belongs to an epoch that was
abandoned. ``files`` and ``hadoop_files`` are the file systems, ``flushing`` what must outlast a
power cut, and ``publishing`` moves committed output to where readers see it.
"""
