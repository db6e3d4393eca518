-- A Netplumb recording, version 3. docs/reference/recording.md explains it.
-- Ids are dense and start at 0. Costs hang on a calling-context tree (node);
-- the views at the end give what most questions ask for.

CREATE TABLE recording (
  key   TEXT NOT NULL PRIMARY KEY,   -- complete ('yes'/'no'), experiment (its TOML)
  value TEXT NOT NULL
) STRICT;

CREATE TABLE environment (
  key   TEXT NOT NULL PRIMARY KEY,   -- dotted: kernel.release, vm.qemu, config.HZ ...
  value TEXT NOT NULL
) STRICT;

CREATE TABLE arm (
  id         INTEGER NOT NULL PRIMARY KEY,
  name       TEXT NOT NULL,
  proto      TEXT NOT NULL,          -- raw, udp, tcp
  family     TEXT NOT NULL,          -- ipv4, ipv6
  link       TEXT NOT NULL,          -- lo, veth, virtio-net, e1000, usb-net
  forward    INTEGER NOT NULL,       -- 1 if a router stands between the ends
  size_bytes INTEGER NOT NULL        -- payload of one packet
) STRICT;

CREATE TABLE knob (
  arm   INTEGER NOT NULL REFERENCES arm(id),
  name  TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (arm, name)
) STRICT;

CREATE TABLE block (
  id           INTEGER NOT NULL PRIMARY KEY,
  arm          INTEGER NOT NULL REFERENCES arm(id),
  repetition   INTEGER NOT NULL,
  offered      INTEGER NOT NULL,     -- packets sent
  delivered    INTEGER NOT NULL,     -- packets received
  kernel_insns INTEGER NOT NULL,     -- counted apart from the costs, and equal to their sum
  user_insns   INTEGER NOT NULL,
  entered      INTEGER NOT NULL,     -- functions entered in the window
  returned     INTEGER NOT NULL      -- of these, returned in it
) STRICT;

CREATE TABLE dropped (
  block   INTEGER NOT NULL REFERENCES block(id),
  cause   TEXT NOT NULL,
  packets INTEGER NOT NULL,
  PRIMARY KEY (block, cause)
) STRICT;

CREATE TABLE source_file (
  id   INTEGER NOT NULL PRIMARY KEY,
  path TEXT NOT NULL                 -- as the compiler was told it
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

CREATE TABLE node (
  id       INTEGER NOT NULL PRIMARY KEY,
  parent   INTEGER REFERENCES node(id),  -- NULL where a context begins
  function INTEGER NOT NULL REFERENCES function(id),
  tail     INTEGER NOT NULL          -- 1 if it was jumped to, not called
) STRICT;

CREATE TABLE cost (
  block      INTEGER NOT NULL REFERENCES block(id),
  direction  TEXT NOT NULL,          -- tx, rx, forward, echo, ack, other
  context    TEXT NOT NULL,          -- task, other-task, softirq:VECTOR, hardirq
  node       INTEGER NOT NULL REFERENCES node(id),
  calls      INTEGER NOT NULL,
  self_insns INTEGER NOT NULL,
  PRIMARY KEY (block, direction, context, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE line_cost (
  block    INTEGER NOT NULL REFERENCES block(id),
  function INTEGER NOT NULL REFERENCES function(id),
  file     INTEGER NOT NULL REFERENCES source_file(id),
  line     INTEGER NOT NULL,
  insns    INTEGER NOT NULL,
  PRIMARY KEY (block, function, file, line)
) STRICT, WITHOUT ROWID;

CREATE TABLE loss (
  cause   TEXT NOT NULL PRIMARY KEY,
  count   INTEGER NOT NULL,
  meaning TEXT NOT NULL
) STRICT;

-- Self cost and calls of every function, by block, direction and context.
CREATE VIEW function_cost AS
SELECT c.block, b.arm, a.proto || ' ' || c.direction AS class, c.context,
       f.id AS function, f.name, f.module, f.layer,
       sum(c.calls) AS calls, sum(c.self_insns) AS self_insns
FROM cost c
JOIN block b ON b.id = c.block
JOIN arm a ON a.id = b.arm
JOIN node n ON n.id = c.node
JOIN function f ON f.id = n.function
GROUP BY c.block, c.direction, c.context, f.id;

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

-- The same with all that was called from there: `total_insns`. Recursion counts
-- once, where it began.
CREATE VIEW function_total AS
WITH RECURSIVE up(block, direction, context, node, above, self_insns) AS (
  SELECT block, direction, context, node, node, self_insns FROM cost
  UNION ALL
  SELECT up.block, up.direction, up.context, up.node, n.parent, up.self_insns
  FROM up JOIN node n ON n.id = up.above
  WHERE n.parent IS NOT NULL
)
SELECT each.block, b.arm, a.proto || ' ' || each.direction AS class, each.context,
       f.id AS function, f.name, f.module, f.layer,
       sum(each.self_insns) AS total_insns
FROM (
  SELECT DISTINCT up.block, up.direction, up.context, up.node, n.function, up.self_insns
  FROM up JOIN node n ON n.id = up.above
) each
JOIN block b ON b.id = each.block
JOIN arm a ON a.id = b.arm
JOIN function f ON f.id = each.function
GROUP BY each.block, each.direction, each.context, f.id;
