package logplayer.realtime;

/** Why a task cannot go on: a value that the driver compares, with the words for people beside it. */
final class Ending extends RuntimeException {
  enum Kind {
    /** A newer player of the same group has taken over. */
    SUPERSEDED,
    /** The log has decided on members, maps or quarantine: the query starts again with the new state. */
    CHANGED,
    /** The target knows a newer epoch. */
    FENCED,
    /** The store refuses an entry for good. */
    POISON,
    /** Log and target, or the log and what was read of it, have different histories. */
    DIVERGED,
    /** The target has less than the log can add to. */
    RESEED,
    /** The target refuses for another reason. */
    REFUSED,
    /** The target is away, or has not answered in time: its group opens its sessions again. */
    LOST,
    /** The log cannot be read. */
    LOG,
    /** The query is not one through which exactly-once can be kept. */
    UNSAFE,
    /** A row cannot be made into what a target takes. */
    BAD_ROW
  }

  private static final long serialVersionUID = 1L;
  final Kind kind;
  final String target;
  final long index;

  Ending(Kind kind, String target, long index, String detail) {
    super(kind + (target.isEmpty() ? "" : " at target " + target) + ": " + detail);
    this.kind = kind;
    this.target = target;
    this.index = index;
  }
}
