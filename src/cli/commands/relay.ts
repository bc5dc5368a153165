import type { Command } from 'commander';
import { Option } from 'commander';
import type { DashboardServer } from '../../dashboard/serve-dashboard.ts';
import { PostcommitError } from '../../errors.ts';
import { createMetrics, type Metrics } from '../../metrics/metrics.ts';
import { OutputWatch } from '../../process/output-watch.ts';
import { exitCodeOfSignal, type StopSignal, StopSignals } from '../../process/stop-signals.ts';
import type { RelayOptions } from '../../relay/options.ts';
import { resolveRelayLogger } from '../../relay/options.ts';
import type { Relay } from '../../relay/relay.ts';
import { createRelay } from '../../relay/relay.ts';
import { RelayGroup } from '../../relay/relay-group.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { jsonLine, lineLogger, withFields } from '../../telemetry/logging.ts';
import { redact } from '../../telemetry/redaction.ts';
import { queueArgument, wholeNumber } from '../arguments.ts';
import { loadHandlers } from '../config.ts';
import type { Context } from '../context.ts';
import { contextOf, examples } from '../context.ts';
import { dashboardOption, portOf, startDashboard } from '../dashboard-flags.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import { prettyLine } from '../pretty-line.ts';
import type { ConfigFile, Settings } from '../settings.ts';
import type { Terminal } from '../terminal.ts';
import { wantsColour } from '../terminal.ts';

/** Flags that override the same option of the config file. */
type Overrides = Pick<
  RelayOptions,
  | 'name'
  | 'leaseMs'
  | 'blockedMaxMs'
  | 'deliverTimeoutMs'
  | 'inFlightMax'
  | 'batchSizeMax'
  | 'prefetchMax'
  | 'inFlightBytesMax'
  | 'prefetchBytesMax'
  | 'loadBytesMax'
  | 'pollIntervalMs'
  | 'stopTimeoutMs'
  | 'poison'
>;

interface RelayFlags extends Overrides {
  queue?: Record<string, number>;
  httpPort?: number;
  httpHost?: string;
  once?: boolean;
  dashboard?: number | true;
  logLevel: keyof Logger;
  pretty?: boolean;
  /** Commander's `--no-listen`: true when it was not given. */
  listen: boolean;
}

/** Why a relay stops. */
type StopCause = { signal: StopSignal } | { outputError: PostcommitError } | { thrown: unknown };

const logLevels: (keyof Logger)[] = ['debug', 'info', 'warn', 'error'];
const anyNumber = wholeNumber(0, 999_999_999);
const fromOne = wholeNumber(1, 999_999_999);

export function addRelay(program: Command, terminal: Terminal): void {
  program
    .command('relay')
    .summary('deliver events to the handlers and destinations of the config file')
    .description(
      'Deliver events to the handlers and destinations of the config file until SIGTERM or SIGINT. On a signal the relay claims nothing more, waits up to stopTimeoutMs for deliveries in flight, releases the rest for other relays, and exits with code 0. If the file has several outboxes, one process serves all of them, and one whose database is down does not disturb the others. After SIGHUP the exit code is 129; if a log line cannot be written it is 1. A second SIGTERM or SIGINT ends the process immediately. Logs JSON lines to stdout, or human-readable lines with --pretty.',
    )
    .option('--once', 'deliver what is due now, then stop')
    .option('--name <name>', 'name of this relay in `postcommit status` (default: host name and process id)')
    .addOption(new Option('--log-level <level>', 'minimum level to log').choices(logLevels).default('info'))
    .option('--pretty', 'log human-readable lines instead of JSON')
    .option('--lease-ms <n>', 'how long the relay counts as alive without a heartbeat', anyNumber)
    .option('--blocked-max-ms <n>', 'a relay whose event loop is blocked for longer is taken over', anyNumber)
    .option('--deliver-timeout-ms <n>', 'a handler call that takes longer fails', anyNumber)
    .option('--in-flight-max <n>', 'maximum events of the queue default in handlers at once', fromOne)
    .option(
      '--queue <name=n>',
      'work this queue, with at most n of its events in handlers at once; repeat it for several queues (default: those of the config file, or default)',
      queueArgument,
    )
    .option('--batch-size-max <n>', 'maximum events per claim', anyNumber)
    .option(
      '--prefetch-max <n>',
      'maximum events that the relay holds: waiting, in flight and not yet settled',
      anyNumber,
    )
    .option('--in-flight-bytes-max <n>', 'bytes of large payloads (over 16 KB) in flight at once', anyNumber)
    .option(
      '--prefetch-bytes-max <n>',
      'maximum characters, not bytes, of payloads and headers up to 16 KB in memory',
      anyNumber,
    )
    .option(
      '--load-bytes-max <n>',
      'largest payload to load; an event with a larger one becomes a dead letter',
      anyNumber,
    )
    .option('--poll-interval-ms <n>', 'longest time between two polls of the queue', anyNumber)
    .option('--stop-timeout-ms <n>', 'how long to wait for deliveries in flight when stopping', anyNumber)
    .addOption(new Option('--poison <policy>', 'whether a dead letter blocks its aggregate').choices(['skip', 'block']))
    .option('--http-port <n>', 'serve /livez, /readyz and /metrics on this port', wholeNumber(0, 65_535))
    .option('--http-host <address>', 'address to serve them on; 0.0.0.0 for probes of other hosts (default: 127.0.0.1)')
    .addOption(dashboardOption())
    .option('--no-listen', 'do not use LISTEN (behind a transaction pooler)')
    .addHelpText(
      'after',
      examples(
        ['run until stopped', 'relay'],
        ['deliver what is due now, e.g. from cron', 'relay --once'],
        ['a second relay that handles fewer events at once', 'relay --name night --in-flight-max 10'],
        ['a worker for long reports only', 'relay --queue reports=2'],
        ['log every delivery, for people', 'relay --log-level debug --pretty'],
        ['with probes and metrics for Kubernetes', 'relay --http-port 9464 --http-host 0.0.0.0'],
        ['with a dashboard on http://127.0.0.1:4400', 'relay --dashboard'],
      ),
    )
    .action((flags: RelayFlags, command: Command) => runRelay(contextOf(command, terminal), flags));
}

async function runRelay(context: Context, flags: RelayFlags): Promise<void> {
  const { once, logLevel, pretty, dashboard: dashboardFlag } = flags;
  const { settings, terminal, output } = context;
  const signals = new StopSignals();
  const outputs = new OutputWatch(terminal);
  const uncaught = new UncaughtErrorWatch();
  let cause: StopCause | undefined;
  let dashboard: DashboardServer | undefined;
  const stopped: Promise<StopCause> = Promise.race([
    signals.first.then((signal) => ({ signal })),
    outputs.failed.then((outputError) => ({ outputError })),
    uncaught.first,
  ]);
  void stopped.then((first) => {
    cause = first;
  });
  try {
    const found = await settings.wholeFile();
    if (found === undefined)
      throw new PostcommitError('POSTCOMMIT_E_NO_CONFIG', `Searched ${terminal.cwd} and its parent folders.`);
    // With --once --json, stdout gets one JSON document: the result.
    const logStream = once && output.json ? terminal.stderr : terminal.stdout;
    const format = pretty ? prettyLine(wantsColour(logStream, terminal.env)) : jsonLine;
    const logger = resolveRelayLogger(
      found.config.logger ?? lineLogger(format, (line) => logStream.write(redact(line)), logLevel),
    );
    const relay =
      found.config.outboxes === undefined
        ? await relayOf(settings, flags, { logger })
        : await relayGroup(settings, flags, logger);
    // Stopped while the config file was loading: nothing has started.
    if (cause !== undefined) return endBecauseOf(cause);
    uncaught.start();
    const dashboardPort = portOf(dashboardFlag);
    if (dashboardPort !== undefined) {
      const onError = (error: unknown) => logger.error({ error: errorText(error) }, 'the dashboard failed to answer');
      dashboard = await startDashboard(settings, terminal, { port: dashboardPort, onError });
      logger.info({ url: dashboard.url }, 'serving the dashboard');
    }
    if (once) {
      const result = await Promise.race([relay.runOnce(), stopped.then(() => undefined)]);
      if (result !== undefined) {
        output.show(result, () => logger.info(result, 'delivered what was due'));
        await outputs.flush();
        if (outputs.error !== undefined) throw outputs.error;
        if (Object.values(result).some((each) => each.error !== undefined)) throw new ExitWith(exitCodes.failed);
        return;
      }
    } else {
      // On a signal while it connects, stop() waits for start() and then stops.
      await Promise.race([relay.start(), stopped]);
    }
    const first = await stopped;
    logStop(first, logger);
    await relay.stop();
    endBecauseOf(first);
  } finally {
    await dashboard?.stop();
    signals.close();
    outputs.close();
    uncaught.close();
  }
}

/** The relay of one outbox: the options of the config file, and the flags that override them. */
async function relayOf(
  settings: Settings,
  flags: RelayFlags,
  { logger, metrics }: { logger: Logger; metrics?: Metrics },
): Promise<Relay> {
  const {
    once: _,
    logLevel,
    pretty: _pretty,
    listen,
    queue: queues,
    httpPort,
    httpHost,
    dashboard,
    ...overrides
  } = flags;
  const found = (await settings.configFile()) as ConfigFile;
  const {
    outboxes: _outboxes,
    partitions: _forMigrate,
    alerts: _forAlerts,
    connectionString: _url,
    connection: _connection,
    http,
    ...config
  } = found.config;
  const relay = createRelay({
    ...config,
    ...(await settings.connection()),
    schema: await settings.schema(),
    handlers: await loadHandlers(found.file, found.config),
    ...overrides,
    // Instead of what the config file says; both together are refused.
    ...(queues && { queues, inFlightMax: overrides.inFlightMax }),
    ...(listen ? {} : { listen: false }),
    ...(found.own === undefined && httpOptions(http, httpPort, httpHost)),
    ...(metrics && { metrics }),
    logger,
  });
  if (logLevel === 'debug') logDeliveries(relay, logger);
  return relay;
}

/** The relays of all outboxes of the config file, each with metrics and log lines that name it. */
async function relayGroup(settings: Settings, flags: RelayFlags, logger: Logger): Promise<RelayGroup> {
  const { http } = httpOptions((await settings.wholeFile())?.config.http, flags.httpPort, flags.httpHost);
  const relays = new Map<string, Relay>();
  const all: Metrics[] = [];
  for (const { name, settings: own } of await settings.outboxes()) {
    const metrics = (await own.configFile())?.config.metrics ?? (http && createMetrics({ labels: { outbox: name } }));
    if (metrics) all.push(metrics);
    const parts = { logger: withFields(logger, { outbox: name }), ...(metrics && { metrics }) };
    relays.set(name, await relayOf(own, flags, parts));
  }
  return new RelayGroup({ relays, metrics: all, http, logger });
}

/** The flags override the config file one by one. */
function httpOptions(http: RelayOptions['http'], port = http?.port, host = http?.host): Pick<RelayOptions, 'http'> {
  if (port === undefined) {
    if (host === undefined) return {};
    throw new PostcommitError('POSTCOMMIT_E_USAGE', '--http-host needs --http-port.');
  }
  return { http: { ...http, port, ...(host !== undefined && { host }) } };
}

function logStop(cause: StopCause, logger: Logger): void {
  if ('signal' in cause) logger.info({ signal: cause.signal }, 'stopping, waiting for deliveries in flight');
  else if ('thrown' in cause) logger.error({ error: errorText(cause.thrown) }, 'uncaught error, stopping');
  else logger.error({ error: errorText(cause.outputError) }, 'writing output failed, stopping');
}

/** SIGTERM and SIGINT are a normal stop. Every other cause has an exit code that a supervisor notices. */
function endBecauseOf(cause: StopCause): void {
  if ('thrown' in cause) throw new ExitWith(exitCodes.failed);
  if ('outputError' in cause) throw cause.outputError;
  if (cause.signal === 'SIGHUP') throw new ExitWith(exitCodeOfSignal(cause.signal));
}

/**
 * Catches errors that escape a handler, in a promise or a callback that it does not await. The process is in an unknown
 * state, but it can still finish deliveries in flight and release the rest.
 */
class UncaughtErrorWatch {
  #listener: (thrown: unknown) => void = () => {};
  readonly first = new Promise<{ thrown: unknown }>((resolve) => {
    this.#listener = (thrown) => resolve({ thrown });
  });

  start(): void {
    process.on('uncaughtException', this.#listener);
  }

  close(): void {
    process.off('uncaughtException', this.#listener);
  }
}

function logDeliveries(relay: Relay, logger: Logger): void {
  relay.on('delivered', ({ eventId, eventType, aggregateType, aggregateId, ...rest }) => {
    const names = {
      event_id: eventId,
      event_type: eventType,
      aggregate_type: aggregateType,
      aggregate_id: aggregateId,
    };
    logger.debug({ ...names, ...rest }, 'delivered');
  });
}
