-- A Netplumb recording, version 5. docs/reference/recording.md explains it.
-- Ids are dense and start at 0. Costs and times hang on a calling-context tree (node);
-- the views at the end give what most questions ask for.

CREATE TABLE recording (
  key   TEXT NOT NULL PRIMARY KEY,   -- complete ('yes'/'no'), experiment (its TOML)
  value TEXT NOT NULL
) STRICT;

CREATE TABLE environment (
  key   TEXT NOT NULL PRIMARY KEY,   -- dotted: kernel.release, vm.qemu, config.HZ ...
  value TEXT NOT NULL
) STRICT;

-- What was measured, as the instrument declares it.
CREATE TABLE quantity (
  id         INTEGER NOT NULL PRIMARY KEY,
  instrument TEXT NOT NULL,          -- exact, functions, stages, rates ...
  name       TEXT NOT NULL,
  unit       TEXT NOT NULL,          -- instructions, ns, packets/s ...
  kind       TEXT NOT NULL,          -- count, duration, rate, share
  repeats    TEXT NOT NULL,          -- exactly, statistically
  calls      TEXT NOT NULL,          -- what cost.calls are: entries, samples, times, events
  number     TEXT,                   -- what scalar.number is: CPU, queue, goal
  label      TEXT                    -- what scalar.label is: cause, place
) STRICT;

CREATE TABLE arm (
  id         INTEGER NOT NULL PRIMARY KEY,
  name       TEXT NOT NULL,
  proto      TEXT NOT NULL,          -- raw, udp, tcp
  family     TEXT NOT NULL,          -- ipv4, ipv6
  link       TEXT NOT NULL,          -- lo, veth, virtio-net, e1000, usb-net
  forward    INTEGER NOT NULL,       -- 1 if a router stands between the ends
  size_bytes INTEGER NOT NULL,       -- payload of one packet
  made_from  TEXT,                   -- the arm that it is compared with, of an arm that was
                                     -- added: under another seed, or with a setting of a scan
  setting    TEXT,                   -- of a scan: its values before and after
  control    INTEGER                 -- of a scan: 1 if it is written with the value it has
) STRICT;

CREATE TABLE knob (
  arm   INTEGER NOT NULL REFERENCES arm(id),
  name  TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (arm, name)
) STRICT;

-- What came of an arm beside its figures.
CREATE TABLE arm_note (
  arm  INTEGER NOT NULL REFERENCES arm(id),
  kind TEXT NOT NULL,                -- failed, fact, inert, diagnosis, irregular
  key  TEXT NOT NULL,                -- the instrument; of the fact; the setting; the goal
  text TEXT NOT NULL,
  PRIMARY KEY (arm, kind, key)
) STRICT;

CREATE TABLE block (
  id           INTEGER NOT NULL PRIMARY KEY,
  arm          INTEGER NOT NULL REFERENCES arm(id),
  instrument   TEXT NOT NULL,        -- what measured it; empty: nothing did
  repetition   INTEGER NOT NULL,     -- by that instrument
  offered      INTEGER NOT NULL,     -- packets sent
  delivered    INTEGER NOT NULL,     -- packets received
  entered      INTEGER NOT NULL,     -- functions entered in the window
  returned     INTEGER NOT NULL,     -- of these, returned in it
  duration_ns  INTEGER NOT NULL      -- 0: a clock without time
) STRICT;

-- What a block had of a quantity: counted apart from its costs, which add up to it.
CREATE TABLE total (
  block    INTEGER NOT NULL REFERENCES block(id),
  quantity INTEGER NOT NULL REFERENCES quantity(id),
  kernel   INTEGER NOT NULL,
  user     INTEGER NOT NULL,
  PRIMARY KEY (block, quantity)
) STRICT, WITHOUT ROWID;

-- One figure of a block, of an arm (block is NULL), or of the run (both are).
CREATE TABLE scalar (
  block    INTEGER REFERENCES block(id),
  arm      INTEGER REFERENCES arm(id),
  quantity INTEGER NOT NULL REFERENCES quantity(id),
  number   INTEGER,                  -- of what quantity.number says
  label    TEXT,                     -- of what quantity.label says
  value    REAL                      -- NULL: asked for, and not known
) STRICT;

CREATE TABLE dropped (
  block   INTEGER NOT NULL REFERENCES block(id),
  cause   TEXT NOT NULL,
  packets INTEGER NOT NULL,
  PRIMARY KEY (block, cause)
) STRICT;

-- The way of a block's packets, from each count to the next.
CREATE TABLE hop (
  block   INTEGER NOT NULL REFERENCES block(id),
  place   INTEGER NOT NULL,          -- on the way, from 0
  name    TEXT NOT NULL,
  entered INTEGER NOT NULL,          -- packets that came to it
  "left"  INTEGER NOT NULL,          -- packets that left it for the next one
  PRIMARY KEY (block, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE hop_dropped (
  block   INTEGER NOT NULL,
  place   INTEGER NOT NULL,
  cause   TEXT NOT NULL,
  packets INTEGER NOT NULL,
  PRIMARY KEY (block, place, cause),
  FOREIGN KEY (block, place) REFERENCES hop(block, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE source_file (
  id   INTEGER NOT NULL PRIMARY KEY,
  path TEXT NOT NULL                 -- as the compiler was told it
) STRICT;

-- Of those that were found where the recording was made.
CREATE TABLE source_text (
  file INTEGER NOT NULL PRIMARY KEY REFERENCES source_file(id),
  text TEXT NOT NULL
) STRICT;

CREATE TABLE function (
  id         INTEGER NOT NULL PRIMARY KEY,
  name       TEXT NOT NULL,
  module     TEXT,                   -- NULL: the kernel itself
  layer      TEXT,                   -- NULL: no rule names it
  address    INTEGER NOT NULL,       -- as a signed 64-bit number
  size_bytes INTEGER NOT NULL,
  file       INTEGER REFERENCES source_file(id),  -- where it is defined; NULL: not known
  line       INTEGER
) STRICT;

-- Nodes that costs or spans refer to, with all above them. Those that only samples are of may be
-- in node_chunk instead.
CREATE TABLE node (
  id       INTEGER NOT NULL PRIMARY KEY,
  parent   INTEGER REFERENCES node(id),  -- NULL where a context begins
  function INTEGER NOT NULL REFERENCES function(id),
  tail     INTEGER NOT NULL          -- 1 if it was jumped to, not called
) STRICT;

-- Other nodes, packed.
CREATE TABLE node_chunk (
  first   INTEGER NOT NULL PRIMARY KEY,  -- the first one's id
  count   INTEGER NOT NULL,          -- of nodes
  columns BLOB NOT NULL              -- see the reference
) STRICT;

CREATE TABLE cost (
  block     INTEGER NOT NULL REFERENCES block(id),
  quantity  INTEGER NOT NULL REFERENCES quantity(id),
  direction TEXT NOT NULL,           -- tx, rx, forward, echo, ack, other
  context   TEXT NOT NULL,           -- task, other-task, softirq:VECTOR, hardirq
  node      INTEGER NOT NULL REFERENCES node(id),
  calls     INTEGER NOT NULL,        -- of samples, how many there are
  own       INTEGER NOT NULL,        -- of the function itself, in the quantity's unit
  PRIMARY KEY (block, quantity, direction, context, node)
) STRICT, WITHOUT ROWID;

-- Threads that samples were taken in.
CREATE TABLE thread (
  id   INTEGER NOT NULL PRIMARY KEY,
  pid  INTEGER NOT NULL,             -- 0: the idle task
  tid  INTEGER NOT NULL,
  name TEXT NOT NULL
) STRICT;

-- Single samples with their times, packed. What they add up to is not in cost.
CREATE TABLE sample (
  block    INTEGER NOT NULL REFERENCES block(id),
  quantity INTEGER NOT NULL REFERENCES quantity(id),
  chunk    INTEGER NOT NULL,         -- in the order of time, from 0
  count    INTEGER NOT NULL,         -- of samples
  begin_ns INTEGER NOT NULL,         -- time of the first, since the first block began
  columns  BLOB NOT NULL,            -- see the reference
  PRIMARY KEY (block, quantity, chunk)
) STRICT;

CREATE TABLE line_cost (
  block    INTEGER NOT NULL REFERENCES block(id),
  function INTEGER NOT NULL REFERENCES function(id),
  file     INTEGER NOT NULL REFERENCES source_file(id),
  line     INTEGER NOT NULL,
  insns    INTEGER NOT NULL,
  PRIMARY KEY (block, function, file, line)
) STRICT, WITHOUT ROWID;

-- Instructions that an arm executed, and how often, packed.
CREATE TABLE code (
  id        INTEGER NOT NULL PRIMARY KEY,
  arm       INTEGER NOT NULL REFERENCES arm(id),
  functions INTEGER NOT NULL,        -- so many are in it
  insns     INTEGER NOT NULL,
  columns   BLOB NOT NULL            -- see the reference
) STRICT;

-- What an instrument lost, missed or could not attribute.
CREATE TABLE loss (
  instrument TEXT NOT NULL,
  cause      TEXT NOT NULL,
  count      INTEGER NOT NULL,
  meaning    TEXT NOT NULL,
  PRIMARY KEY (instrument, cause)
) STRICT;

-- Functions and tracepoints that an instrument could not watch.
CREATE TABLE not_measured (
  instrument TEXT NOT NULL,
  name       TEXT NOT NULL,
  reason     TEXT NOT NULL,
  PRIMARY KEY (instrument, name)
) STRICT;

-- Functions that an instrument left out to stay within its limits (--max-functions,
-- --max-overhead).
CREATE TABLE over_budget (
  instrument TEXT NOT NULL,
  place      INTEGER NOT NULL,       -- in the order in which they were given up, from 0
  name       TEXT NOT NULL,
  PRIMARY KEY (instrument, place)
) STRICT;

-- Settings that a scan did not try.
CREATE TABLE not_tried (
  setting TEXT NOT NULL PRIMARY KEY,
  reason  TEXT NOT NULL
) STRICT;

-- Times from one event to the next: of a function, from entry to exit, in a calling context
-- (node), or of a stage of the path of packets (place, name). As read.
CREATE TABLE span (
  id             INTEGER NOT NULL PRIMARY KEY,
  block          INTEGER NOT NULL REFERENCES block(id),
  direction      TEXT NOT NULL,      -- as in cost
  context        TEXT,               -- of a function, as in cost
  node           INTEGER REFERENCES node(id),
  corrected_ns   REAL,               -- of a function: total_ns less the probes' own cost, if known
  uncertainty_ns REAL,               -- half the width of its 95 % interval
  place          INTEGER,            -- of a stage: on the path, from 0
  name           TEXT,
  kind           TEXT,               -- work, wait, unaccounted, total
  passed_over    INTEGER,            -- packets on this path, but not through it
  count          INTEGER NOT NULL,   -- calls that returned in the window; packets
  total_ns       INTEGER NOT NULL,   -- of a function: what interrupted it is not in it
  min_ns         INTEGER NOT NULL,
  max_ns         INTEGER NOT NULL,
  CHECK ((node IS NULL) = (context IS NULL) AND (node IS NULL) <> (name IS NULL)
    AND (name IS NULL) = (place IS NULL) AND (name IS NULL) = (kind IS NULL)
    AND (name IS NULL) = (passed_over IS NULL))
) STRICT;

CREATE TABLE span_bucket (
  span   INTEGER NOT NULL REFERENCES span(id),
  bucket INTEGER NOT NULL,           -- see bucket_bounds
  count  INTEGER NOT NULL,
  PRIMARY KEY (span, bucket)
) STRICT, WITHOUT ROWID;

-- Times between events by what they are broken down by.
CREATE TABLE span_group (
  id       INTEGER NOT NULL PRIMARY KEY,
  block    INTEGER NOT NULL REFERENCES block(id),
  by       TEXT NOT NULL,            -- device, task, cpu
  name     TEXT NOT NULL,
  count    INTEGER NOT NULL,
  total_ns INTEGER NOT NULL,
  min_ns   INTEGER NOT NULL,
  max_ns   INTEGER NOT NULL
) STRICT;

CREATE TABLE span_group_bucket (
  span_group INTEGER NOT NULL REFERENCES span_group(id),
  bucket     INTEGER NOT NULL,       -- see bucket_bounds
  count      INTEGER NOT NULL,
  PRIMARY KEY (span_group, bucket)
) STRICT, WITHOUT ROWID;

-- Times between events over time, from the first event to the last: those that ended in a while.
CREATE TABLE span_slice (
  id          INTEGER NOT NULL PRIMARY KEY,
  block       INTEGER NOT NULL REFERENCES block(id),
  begin_ns    INTEGER NOT NULL,      -- since the first block began
  duration_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE span_slice_bucket (
  span_slice INTEGER NOT NULL REFERENCES span_slice(id),
  bucket     INTEGER NOT NULL,       -- that and the three that follow: see bucket_bounds
  count      INTEGER NOT NULL,
  PRIMARY KEY (span_slice, bucket)
) STRICT, WITHOUT ROWID;

-- By what functions were timed.
CREATE TABLE attachment (
  function  INTEGER NOT NULL REFERENCES function(id),
  mechanism TEXT NOT NULL,           -- fsession, fentry+fexit, kprobe.session ...
  arguments INTEGER NOT NULL
) STRICT;

-- What the probes cost, measured on an empty function.
CREATE TABLE calibration (
  cpu            INTEGER,            -- NULL: the median of all
  mechanism      TEXT NOT NULL,
  arguments      INTEGER NOT NULL,
  bias_ns        REAL NOT NULL,      -- what is read for a function that does nothing
  pair_ns        REAL NOT NULL,      -- what a probe pair takes, the bias included
  uncertainty_ns REAL NOT NULL
) STRICT;

-- Traces of single packets.
CREATE TABLE trace (
  id       INTEGER PRIMARY KEY,
  block    INTEGER REFERENCES block(id),           -- NULL: not known, of older recordings
  quantity INTEGER NOT NULL REFERENCES quantity(id),
  follows  TEXT NOT NULL,            -- call, packet
  number   INTEGER NOT NULL,         -- from 0: of the calls of a block, of the packets of a recording
  steps    INTEGER NOT NULL          -- how many of trace_step, in its order
) STRICT;

CREATE TABLE trace_text (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL
) STRICT;

-- Steps of all traces, packed: docs/reference/recording.md.
CREATE TABLE trace_step (
  id      INTEGER PRIMARY KEY,
  count   INTEGER NOT NULL,
  columns BLOB NOT NULL
) STRICT;

-- Self cost and calls of every function, by block, direction and context.
CREATE VIEW function_cost AS
SELECT c.block, b.arm, q.name AS quantity, q.unit,
       a.proto || ' ' || c.direction AS class, c.context,
       f.id AS function, f.name, f.module, f.layer,
       sum(c.calls) AS calls, sum(c.own) AS own
FROM cost c
JOIN quantity q ON q.id = c.quantity
JOIN block b ON b.id = c.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = c.node
JOIN function f ON f.id = n.function
GROUP BY c.block, c.quantity, c.direction, c.context, f.id;

-- Who called whom, how often.
CREATE VIEW edge AS
SELECT c.block, a.proto || ' ' || c.direction AS class, c.context,
       caller.name AS caller, callee.name AS callee, sum(c.calls) AS calls
FROM cost c
JOIN block b ON b.id = c.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = c.node
JOIN function callee ON callee.id = n.function
LEFT JOIN node p ON p.id = n.parent
LEFT JOIN function caller ON caller.id = p.function
GROUP BY c.block, c.direction, c.context, p.function, n.function;

-- The same with all that was called from there: `total`. Recursion counts once,
-- where it began.
CREATE VIEW function_total AS
WITH RECURSIVE up(block, quantity, direction, context, node, above, own) AS (
  SELECT block, quantity, direction, context, node, node, own FROM cost
  UNION ALL
  SELECT up.block, up.quantity, up.direction, up.context, up.node, n.parent, up.own
  FROM up JOIN node n ON n.id = up.above
  WHERE n.parent IS NOT NULL
)
SELECT each.block, b.arm, q.name AS quantity, q.unit,
       a.proto || ' ' || each.direction AS class, each.context,
       f.id AS function, f.name, f.module, f.layer,
       sum(each.own) AS total
FROM (
  SELECT DISTINCT up.block, up.quantity, up.direction, up.context, up.node, n.function, up.own
  FROM up JOIN node n ON n.id = up.above
) each
JOIN quantity q ON q.id = each.quantity
JOIN block b ON b.id = each.block
JOIN arm a ON a.id = b.arm
JOIN function f ON f.id = each.function
GROUP BY each.block, each.quantity, each.direction, each.context, f.id;

-- Scalars with what they are of.
CREATE VIEW figure AS
SELECT s.block, coalesce(s.arm, b.arm) AS arm, q.instrument, q.name, q.unit,
       s.number, s.label, s.value
FROM scalar s
JOIN quantity q ON q.id = s.quantity
LEFT JOIN block b ON b.id = s.block;

-- The shortest and the longest time of a bucket, in nanoseconds.
CREATE VIEW bucket_bounds AS
WITH RECURSIVE each(bucket) AS (
  SELECT 0 UNION ALL SELECT bucket + 1 FROM each WHERE bucket < 511
)
SELECT bucket,
       CASE WHEN bucket < 16 THEN bucket
            ELSE (16 + bucket % 16) << (bucket / 16 - 1) END AS from_ns,
       CASE WHEN bucket < 16 THEN bucket
            ELSE ((17 + bucket % 16) << (bucket / 16 - 1)) - 1 END AS to_ns
FROM each;

-- Times of every function, by block, direction and context. Means over all calls,
-- those within another call of the same function too.
CREATE VIEW function_time AS
SELECT t.block, b.arm, a.proto || ' ' || t.direction AS class, t.context,
       f.id AS function, f.name, f.module, f.layer, sum(t.count) AS calls,
       sum(t.total_ns) * 1.0 / sum(t.count) AS raw_ns_per_call,
       sum(t.corrected_ns) / sum(t.count) AS corrected_ns_per_call,
       max(t.max_ns) AS max_ns
FROM span t
JOIN block b ON b.id = t.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = t.node
JOIN function f ON f.id = n.function
GROUP BY t.block, t.direction, t.context, f.id;

-- Corrected time of every function less that of the timed functions below it.
CREATE VIEW function_self_time AS
WITH below AS (
  SELECT t.block, t.direction, t.context, n.parent AS node, sum(t.corrected_ns) AS ns
  FROM span t JOIN node n ON n.id = t.node
  WHERE n.parent IS NOT NULL
  GROUP BY t.block, t.direction, t.context, n.parent
)
SELECT t.block, b.arm, a.proto || ' ' || t.direction AS class, t.context,
       f.id AS function, f.name, f.module, f.layer, sum(t.count) AS calls,
       sum(t.corrected_ns - coalesce(below.ns, 0)) AS self_ns
FROM span t
JOIN block b ON b.id = t.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = t.node
JOIN function f ON f.id = n.function
LEFT JOIN below ON below.block = t.block AND below.direction = t.direction
  AND below.context = t.context AND below.node = t.node
GROUP BY t.block, t.direction, t.context, f.id;

-- How the times of a function are distributed.
CREATE VIEW function_histogram AS
SELECT t.block, b.arm, a.proto || ' ' || t.direction AS class, t.context,
       f.id AS function, f.name, h.bucket, bounds.from_ns, bounds.to_ns, sum(h.count) AS calls
FROM span_bucket h
JOIN span t ON t.id = h.span
JOIN block b ON b.id = t.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = t.node
JOIN function f ON f.id = n.function
JOIN bucket_bounds bounds ON bounds.bucket = h.bucket
GROUP BY t.block, t.direction, t.context, f.id, h.bucket;

-- What a stage took of every packet on its way; a packet that passed it over took
-- none, so the stages of a way add up to its total.
CREATE VIEW stage_time AS
SELECT s.block, b.arm, a.proto || ' ' || s.direction AS class, s.place, s.name, s.kind,
       s.count AS packets, s.passed_over,
       s.total_ns * 1.0 / (s.count + s.passed_over) AS ns_per_packet, s.max_ns
FROM span s
JOIN block b ON b.id = s.block
JOIN arm a ON a.id = b.arm
WHERE s.name IS NOT NULL;
