import os from 'node:os';

/** What a figure depends on besides the software. Part of the settings of every measurement. */
export function machine(): Record<string, unknown> {
  return {
    cpus: os.availableParallelism(),
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    memoryGb: Math.round(os.totalmem() / 2 ** 30),
    os: `${os.type()} ${os.release().split('-')[0]}`,
  };
}

export function warnIfBusy(): void {
  const [load = 0] = os.loadavg();
  if (load < os.availableParallelism() / 2) return;
  console.error(`The load average is ${load.toFixed(1)}: something else is running here and will blur the figures.`);
}
