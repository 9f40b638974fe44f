package logplayer.realtime;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.zip.CRC32;
import logplayer.v1.Entry.ShardMap;
import logplayer.v1.Entry.Snapshot;

/** Which target a key belongs to at an index: what {@code logplayer.core.routing} decides, for the same maps. */
final class Router {
  private static final String NO_OWNER = "";
  private static final Function<byte[], String> NOBODY = key -> NO_OWNER;

  private record Version(long after, Function<byte[], String> owner) {}

  private final List<Version> versions = new ArrayList<>(); // Invariant: `after` rises strictly; the first is 0.

  /** The maps of a control entry at {@code index}; a version without a start is in force from that entry on. */
  Router(Snapshot state, long index) {
    versions.add(new Version(0, NOBODY));
    for (Snapshot.MapVersion one : state.getMapsList()) {
      long after = one.hasAfter() ? one.getAfter() : index;
      Function<byte[], String> owner = ownerOf(one.getMap());
      if (after == 0) {
        versions.set(0, new Version(0, owner));
      } else if (after > versions.get(versions.size() - 1).after()) {
        versions.add(new Version(after, owner));
      }
    }
  }

  /** The function in force at {@code index}: a map record at k is in force for indexes > k. */
  Function<byte[], String> ownerAt(long index) {
    for (int nth = versions.size() - 1; nth > 0; nth--) {
      if (versions.get(nth).after() < index) {
        return versions.get(nth).owner();
      }
    }
    return versions.get(0).owner();
  }

  private static Function<byte[], String> ownerOf(ShardMap map) {
    return switch (map.getKindCase()) {
      case EXPLICIT -> NOBODY;
      case HASH -> hash(map.getHash().getTargetsList(), Function.identity());
      case PART_HASH -> hash(map.getPartHash().getTargetsList(), part(map.getPartHash().getBy()));
      case RANGE -> {
        List<byte[]> bounds = map.getRange().getBoundsList().stream().map(bound -> bound.toByteArray()).toList();
        List<String> targets = List.copyOf(map.getRange().getTargetsList());
        yield key -> targets.get(upperBound(bounds, key));
      }
      case KIND_NOT_SET -> throw new Ending(
          Ending.Kind.LOG, "", 0, "the log has a shard map of a kind that this version does not know; upgrade it");
    };
  }

  private static Function<byte[], String> hash(List<String> names, Function<byte[], byte[]> part) {
    List<String> targets = List.copyOf(names);
    return key -> {
      CRC32 crc = new CRC32();
      crc.update(part.apply(key));
      return targets.get((int) (crc.getValue() % targets.size()));
    };
  }

  /** What is hashed of a key: what stands in its first pair of braces, or before a separator; else all of it. */
  private static Function<byte[], byte[]> part(String by) {
    if (by.equals("tag")) {
      return key -> {
        int start = find(key, new byte[] {'{'}, 0) + 1;
        int end = find(key, new byte[] {'}'}, start);
        return 0 < start && start < end ? Arrays.copyOfRange(key, start, end) : key;
      };
    }
    byte[] separator = by.substring(by.indexOf(' ') + 1).getBytes(StandardCharsets.UTF_8);
    return key -> {
      int end = find(key, separator, 0);
      return end > 0 ? Arrays.copyOf(key, end) : key;
    };
  }

  private static int find(byte[] in, byte[] what, int from) {
    for (int at = from; at <= in.length - what.length; at++) {
      if (Arrays.equals(in, at, at + what.length, what, 0, what.length)) {
        return at;
      }
    }
    return -1;
  }

  private static int upperBound(List<byte[]> bounds, byte[] key) {
    int nth = 0;
    while (nth < bounds.size() && Arrays.compareUnsigned(bounds.get(nth), key) <= 0) {
      nth++;
    }
    return nth;
  }
}
