import type { SessionFacts } from '../../database/session-probe.ts';
import { duration } from '../../format.ts';
import type { ServerFacts } from '../../outbox/examining/examine-server.ts';
import type { Judgement } from './finding.ts';
import { critical, note, ok, warning } from './finding.ts';

const nameThePrimary =
  'name the primary, or all servers: --database-url postgres://user:password@a:5432,b:5432/database?target_session_attrs=read-write';

export function judgeServer({ version, versionNumber, standby, readOnly, encoding }: ServerFacts): Judgement[] {
  const found: Judgement[] = [];
  if (versionNumber < 140_000) {
    found.push(critical(`PostgreSQL ${version}`, 'Postcommit needs PostgreSQL 14 or later.', 'upgrade PostgreSQL'));
  }
  if (standby) {
    const what = 'this server is a standby: it takes no writes';
    const consequence = 'Neither emitters nor relays can work here, and the statistics below are those of a copy.';
    found.push(critical(what, consequence, nameThePrimary));
  } else if (readOnly) {
    const what = 'default_transaction_read_only is on for this role, database or server';
    const consequence = 'Emitting fails unless the transaction is begun READ WRITE. Relays begin theirs so.';
    found.push(warning(what, consequence, 'alter database … set default_transaction_read_only = off;'));
  }
  if (encoding === 'SQL_ASCII') {
    const what = `the database's encoding is ${encoding}: it stores whatever bytes each client sends`;
    const consequence = 'Text that is not UTF-8 is delivered damaged, and JSON with escapes beyond ASCII is refused.';
    found.push(critical(what, consequence, "create database ... template template0 encoding 'UTF8';"));
  } else if (encoding !== 'UTF8') {
    const what = `the database's encoding is ${encoding}`;
    const consequence = 'Events with characters that it does not have are refused.';
    found.push(note(what, consequence, "create database … template template0 encoding 'UTF8';"));
  }
  return found.length > 0 ? found : [ok(`PostgreSQL ${version}`)];
}

/** A setting whose value costs events or speed. */
interface SettingRule {
  name: keyof ServerFacts['settings'];
  bad: (value: string) => boolean;
  judge: typeof critical;
  consequence: string;
  better: string;
}

const settingRules: readonly SettingRule[] = [
  {
    name: 'fsync',
    bad: isOff,
    judge: critical,
    consequence: 'A crash of the machine can corrupt the database and lose committed events.',
    better: 'on',
  },
  {
    name: 'full_page_writes',
    bad: isOff,
    judge: critical,
    consequence: 'A crash in the middle of a page write can corrupt tables, unless the file system rules that out.',
    better: 'on',
  },
  {
    name: 'synchronous_commit',
    bad: isOff,
    judge: warning,
    consequence:
      'A crash can undo transactions that were committed, also some whose events were delivered already: consumers would know of orders that never were.',
    better: 'on',
  },
  {
    name: 'autovacuum',
    bad: isOff,
    judge: critical,
    consequence: 'Nobody removes the dead rows that every delivery leaves in the queue: claims slow down without end.',
    better: 'on',
  },
  {
    name: 'track_counts',
    bad: isOff,
    judge: critical,
    consequence: 'Autovacuum does not know what to do, and the figures of this report are of no use.',
    better: 'on',
  },
  {
    name: 'idle_in_transaction_session_timeout',
    bad: (value) => value === '0',
    judge: note,
    consequence:
      'A session that forgot its transaction keeps dead rows in the queue, and locks, for as long as it lives.',
    better: "'5min'",
  },
];

function isOff(value: string): boolean {
  return value === 'off';
}

export function judgeSettings({ settings }: ServerFacts): Judgement[] {
  const found = settingRules
    .filter(({ name, bad }) => bad(settings[name]))
    .map(({ name, judge, consequence, better }) =>
      judge(
        `${name} is ${settings[name]}`,
        consequence,
        `alter system set ${name} = ${better}; select pg_reload_conf();`,
      ),
    );
  const { fsync, synchronous_commit, wal_level, default_transaction_isolation: isolation } = settings;
  if (isolation !== 'read committed') {
    const consequence =
      'Relays and operators work under READ COMMITTED all the same: a relay sends two more messages with each statement to say so.';
    const fix = "alter role <the relay's role> set default_transaction_isolation = 'read committed';";
    found.push(note(`default_transaction_isolation is ${isolation}`, consequence, fix));
  }
  return [...found, ok(`fsync ${fsync}, synchronous_commit ${synchronous_commit}, wal_level ${wal_level}`)];
}

export function judgeConnections({ connections, connectionsReserved, connectionsMax }: ServerFacts): Judgement[] {
  const room = connectionsMax - connectionsReserved;
  const what = `${connections} of ${room} connections are taken`;
  if (connections < room * 0.8) return [ok(what)];
  const judge = connections >= room * 0.95 ? critical : warning;
  return [
    judge(
      what,
      'When none is left, services and relays that reconnect are refused.',
      'find who has them: select usename, application_name, state, count(*) from pg_stat_activity group by 1, 2, 3 order by 4 desc;',
    ),
  ];
}

/** Only for information: all times that decide anything are the database's (G11). */
export function judgeClock(databaseMs: number, hostMs: { asked: number; answered: number }): Judgement[] {
  const apart = databaseMs < hostMs.asked ? hostMs.asked - databaseMs : Math.max(0, databaseMs - hostMs.answered);
  const direction = databaseMs < hostMs.asked ? 'ahead of' : 'behind';
  if (apart < 2_000) return [ok('the clocks of this host and the database agree')];
  return [
    note(
      `this host's clock is ${duration(apart)} ${direction} the database's`,
      'Delivery does not mind, it goes by the database; ages that this host shows are wrong by as much.',
      'timedatectl set-ntp true',
    ),
  ];
}

export function judgePooler(session: SessionFacts | undefined): Judgement[] {
  if (session === undefined) {
    return [
      note(
        'not looked whether a pooler is in between',
        'To check, give the connection options: admin.doctor({ connectionString }).',
      ),
    ];
  }
  if (!session.pooled) return [ok('connected to PostgreSQL itself, no pooler in between')];
  if (!session.shared) return [ok('a pooler is in between, and keeps one session per connection')];
  return [
    note(
      'a pooler in transaction mode is in between',
      'Emitting and delivering work; LISTEN hears nothing, so relays learn of events by polling.',
      'start relays with `listen: false` and a short pollIntervalMs, or give them a connection string past the pooler',
    ),
  ];
}
