import type { Command } from 'commander';
import { Option } from 'commander';
import { PostcommitError } from '../../errors.ts';
import { OutputWatch } from '../../process/output-watch.ts';
import { exitCodeOfSignal, type StopSignal, StopSignals } from '../../process/stop-signals.ts';
import type { RelayOptions } from '../../relay/options.ts';
import type { Relay } from '../../relay/relay.ts';
import { createRelay } from '../../relay/relay.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { jsonLogger } from '../../telemetry/logging.ts';
import { wholeNumber } from '../arguments.ts';
import { loadHandlers } from '../config.ts';
import type { Context } from '../context.ts';
import { contextOf, examples } from '../context.ts';
import { ExitWith, exitCodes } from '../exit-codes.ts';
import { redact } from '../redact.ts';
import type { Terminal } from '../terminal.ts';

/** Flags that go before the same option of the config file. */
type Overrides = Pick<
  RelayOptions,
  | 'name'
  | 'leaseMs'
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
  once?: boolean;
  logLevel: keyof Logger;
  /** Commander's `--no-listen`: true when it was not given. */
  listen: boolean;
}

/** Why a relay stops before its work is done. */
type StopCause = { signal: StopSignal } | { outputError: PostcommitError } | { thrown: unknown };

const logLevels: (keyof Logger)[] = ['debug', 'info', 'warn', 'error'];
const anyNumber = wholeNumber(0, 999_999_999);

export function addRelay(program: Command, terminal: Terminal): void {
  program
    .command('relay')
    .summary('deliver events to the handlers and destinations of the config file')
    .description(
      'Deliver events to the handlers and destinations of the config file, until SIGTERM or SIGINT: then nothing new is taken, deliveries under way may finish within stopTimeoutMs, the rest goes back for another relay, and the exit code is 0. SIGHUP stops it the same way with exit code 129, a log line that cannot be written with 1. A second SIGTERM or SIGINT ends it at once. Logs JSON lines to stdout.',
    )
    .option('--once', 'deliver what is due now, then stop')
    .option('--name <name>', 'how operators see this relay (default: host name and process id)')
    .addOption(new Option('--log-level <level>', 'least level to log').choices(logLevels).default('info'))
    .option('--lease-ms <n>', 'how long the relay counts as alive without a sign of life', anyNumber)
    .option('--deliver-timeout-ms <n>', 'a handler that takes longer has failed', anyNumber)
    .option('--in-flight-max <n>', 'handlers under way at once', anyNumber)
    .option('--batch-size-max <n>', 'events per claim', anyNumber)
    .option('--prefetch-max <n>', 'events the relay holds at once', anyNumber)
    .option('--in-flight-bytes-max <n>', 'bytes of large payloads (over 16 KB) being delivered at once', anyNumber)
    .option('--prefetch-bytes-max <n>', 'length of small payloads and headers held at once', anyNumber)
    .option('--load-bytes-max <n>', 'largest payload to load; an event with a larger one is a dead letter', anyNumber)
    .option('--poll-interval-ms <n>', 'longest pause between two looks at the queue', anyNumber)
    .option('--stop-timeout-ms <n>', 'how long a stop waits for deliveries under way', anyNumber)
    .addOption(new Option('--poison <policy>', 'what a dead letter does to its aggregate').choices(['skip', 'block']))
    .option('--no-listen', 'do not use LISTEN (behind a transaction pooler)')
    .addHelpText(
      'after',
      examples(
        ['run until stopped', 'relay'],
        ['deliver what is due now, e.g. from cron', 'relay --once'],
        ['a second, gentler relay', 'relay --name night --in-flight-max 10'],
        ['every delivery in the log', 'relay --log-level debug'],
      ),
    )
    .action((flags: RelayFlags, command: Command) => runRelay(contextOf(command, terminal), flags));
}

async function runRelay(context: Context, flags: RelayFlags): Promise<void> {
  const { once, logLevel, listen, ...overrides } = flags;
  const { settings, terminal, output } = context;
  const signals = new StopSignals();
  const outputs = new OutputWatch(terminal);
  const mishaps = new MishapWatch();
  let cause: StopCause | undefined;
  const stopped: Promise<StopCause> = Promise.race([
    signals.first.then((signal) => ({ signal })),
    outputs.failed.then((outputError) => ({ outputError })),
    mishaps.first,
  ]);
  void stopped.then((first) => {
    cause = first;
  });
  try {
    const found = await settings.configFile();
    if (found === undefined)
      throw new PostcommitError('POSTCOMMIT_E_NO_CONFIG', `Looked in ${terminal.cwd} and above.`);
    // With --once --json the answer is the one document on stdout.
    const logStream = once && output.json ? terminal.stderr : terminal.stdout;
    const logger = found.config.logger ?? jsonLogger((line) => logStream.write(redact(line)), logLevel);
    const { partitions: _forMigrate, connectionString: _url, connection: _connection, ...config } = found.config;
    const relay = createRelay({
      ...config,
      ...(await settings.connection()),
      schema: await settings.schema(),
      handlers: await loadHandlers(found.file, found.config),
      ...overrides,
      ...(listen ? {} : { listen: false }),
      logger,
    });
    // While the config file was loading; nothing has begun.
    if (cause !== undefined) return endBecauseOf(cause);
    if (logLevel === 'debug') logDeliveries(relay, logger);
    mishaps.start();
    if (once) {
      const result = await Promise.race([relay.runOnce(), stopped.then(() => undefined)]);
      if (result !== undefined) {
        output.show(result, () => logger.info(result, 'delivered what was due'));
        await outputs.flush();
        if (outputs.error !== undefined) throw outputs.error;
        return;
      }
    } else {
      // A signal while it connects: stop() waits for start() and then stops.
      await Promise.race([relay.start(), stopped]);
    }
    const first = await stopped;
    logStop(first, logger);
    await relay.stop();
    endBecauseOf(first);
  } finally {
    signals.close();
    outputs.close();
    mishaps.close();
  }
}

function logStop(cause: StopCause, logger: Logger): void {
  if ('signal' in cause) logger.info({ signal: cause.signal }, 'stopping; deliveries under way may finish');
  else if ('thrown' in cause) logger.error({ err: errorText(cause.thrown) }, 'an error that nobody caught; stopping');
  else logger.error({ err: errorText(cause.outputError) }, 'output failed; stopping');
}

/** SIGTERM and SIGINT are how a relay is stopped; everything else is for a supervisor to notice. */
function endBecauseOf(cause: StopCause): void {
  if ('thrown' in cause) throw new ExitWith(exitCodes.failed);
  if ('outputError' in cause) throw cause.outputError;
  if (cause.signal === 'SIGHUP') throw new ExitWith(exitCodeOfSignal(cause.signal));
}

/**
 * Errors that a handler left behind, in a promise or a callback of its own. The process cannot be trusted any more, but
 * it can still finish what is under way and give the rest back.
 */
class MishapWatch {
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
