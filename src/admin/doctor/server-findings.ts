import type { SessionFacts } from '../../database/session-probe.ts';
import { duration } from '../../format.ts';
import type { ServerFacts } from '../../outbox/examining/examine-server.ts';
import type { CheckFinding } from './finding.ts';
import { critical, note, ok, warning } from './finding.ts';

const connectToPrimary =
  'connect to the primary, or list all servers: --database-url postgres://user:password@a:5432,b:5432/database?target_session_attrs=read-write';

export function serverFindings({ version, versionNumber, standby, readOnly, encoding }: ServerFacts): CheckFinding[] {
  const found: CheckFinding[] = [];
  if (versionNumber < 140_000) {
    found.push(critical(`PostgreSQL ${version}`, 'Postcommit needs PostgreSQL 14 or later.', 'upgrade PostgreSQL'));
  }
  if (standby) {
    const what = 'this server is a standby and accepts no writes';
    const consequence = 'Emitters and relays cannot work here, and the statistics below are those of the standby.';
    found.push(critical(what, consequence, connectToPrimary));
  } else if (readOnly) {
    const what = 'default_transaction_read_only is on for this role, database or server';
    const consequence = 'Emitting fails unless the transaction begins with READ WRITE. Relays do that.';
    found.push(warning(what, consequence, 'alter database … set default_transaction_read_only = off;'));
  }
  if (encoding === 'SQL_ASCII') {
    const what = `the encoding of the database is ${encoding}: PostgreSQL does not check or convert text`;
    const consequence =
      'Text that is not UTF-8 is delivered corrupted, and JSON with escapes beyond ASCII is rejected.';
    found.push(critical(what, consequence, "create database ... template template0 encoding 'UTF8';"));
  } else if (encoding !== 'UTF8') {
    const what = `the encoding of the database is ${encoding}`;
    const consequence = 'Emitting fails for events with characters that this encoding lacks.';
    found.push(note(what, consequence, "create database … template template0 encoding 'UTF8';"));
  }
  return found.length > 0 ? found : [ok(`PostgreSQL ${version}`)];
}

/** A setting with a value that risks events or slows delivery down. */
interface SettingRule {
  name: keyof ServerFacts['settings'];
  bad: (value: string) => boolean;
  finding: typeof critical;
  consequence: string;
  better: string;
}

const settingRules: readonly SettingRule[] = [
  {
    name: 'fsync',
    bad: isOff,
    finding: critical,
    consequence: 'A crash of the machine can corrupt the database and lose committed events.',
    better: 'on',
  },
  {
    name: 'full_page_writes',
    bad: isOff,
    finding: critical,
    consequence: 'A crash during a page write can corrupt tables, unless the file system prevents it.',
    better: 'on',
  },
  {
    name: 'synchronous_commit',
    bad: isOff,
    finding: warning,
    consequence:
      'A crash can lose committed transactions whose events were already delivered. Consumers then have events about data that does not exist.',
    better: 'on',
  },
  {
    name: 'autovacuum',
    bad: isOff,
    finding: critical,
    consequence: 'Dead rows of delivered events stay in the queue, so claims become slower and slower.',
    better: 'on',
  },
  {
    name: 'track_counts',
    bad: isOff,
    finding: critical,
    consequence: 'Autovacuum does not run, and the figures of this report are wrong.',
    better: 'on',
  },
  {
    name: 'idle_in_transaction_session_timeout',
    bad: (value) => value === '0',
    finding: note,
    consequence:
      'A session that leaves a transaction open keeps its locks, and keeps dead rows in the queue, until it disconnects.',
    better: "'5min'",
  },
];

function isOff(value: string): boolean {
  return value === 'off';
}

export function settingFindings({ settings }: ServerFacts): CheckFinding[] {
  const found = settingRules
    .filter(({ name, bad }) => bad(settings[name]))
    .map(({ name, finding, consequence, better }) =>
      finding(
        `${name} is ${settings[name]}`,
        consequence,
        `alter system set ${name} = ${better}; select pg_reload_conf();`,
      ),
    );
  const { fsync, synchronous_commit, wal_level, default_transaction_isolation: isolation } = settings;
  if (isolation !== 'read committed') {
    const consequence =
      'Relays and commands use READ COMMITTED anyway. A relay needs two more messages per statement to set it.';
    const fix = "alter role <the relay's role> set default_transaction_isolation = 'read committed';";
    found.push(note(`default_transaction_isolation is ${isolation}`, consequence, fix));
  }
  return [...found, ok(`fsync ${fsync}, synchronous_commit ${synchronous_commit}, wal_level ${wal_level}`)];
}

export function connectionFindings({ connections, connectionsReserved, connectionsMax }: ServerFacts): CheckFinding[] {
  const room = connectionsMax - connectionsReserved;
  const what = `${connections} of ${room} connections are in use`;
  if (connections < room * 0.8) return [ok(what)];
  const finding = connections >= room * 0.95 ? critical : warning;
  return [
    finding(
      what,
      'When all are in use, services and relays cannot connect.',
      'find the clients: select usename, application_name, state, count(*) from pg_stat_activity group by 1, 2, 3 order by 4 desc;',
    ),
  ];
}

/** For information only: all decisions use the database's clock (G11). */
export function clockFindings(databaseMs: number, hostMs: { asked: number; answered: number }): CheckFinding[] {
  const apart = databaseMs < hostMs.asked ? hostMs.asked - databaseMs : Math.max(0, databaseMs - hostMs.answered);
  const direction = databaseMs < hostMs.asked ? 'ahead of' : 'behind';
  if (apart < 2_000) return [ok('the clocks of this host and of the database agree')];
  return [
    note(
      `the clock of this host is ${duration(apart)} ${direction} the clock of the database`,
      'Delivery uses the clock of the database and is not affected. Ages that this host shows are wrong by that much.',
      'timedatectl set-ntp true',
    ),
  ];
}

export function poolerFindings(session: SessionFacts | undefined): CheckFinding[] {
  if (session === undefined) {
    return [
      note(
        'pooler not checked: no connection options',
        'A pooler in transaction mode would not be found. Pass admin.doctor({ connectionString }).',
      ),
    ];
  }
  if (!session.pooled) return [ok('connected to PostgreSQL directly, without a pooler')];
  if (!session.shared) return [ok('connected through a pooler that keeps one session per connection')];
  return [
    note(
      'connected through a pooler in transaction mode',
      'Emitting and delivering work, but LISTEN receives nothing, so relays find events only by polling, and a crashed relay is noticed only when its lease ends.',
      'give relays a direct connection string, or start them with `listen: false`; they then poll at least every 250 ms',
    ),
  ];
}
