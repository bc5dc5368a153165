// Tells whether the heartbeat gets a thread in this process.
import { spawnWorker } from '../../src/relay/lease/spawn-worker.ts';

const worker = spawnWorker({ workerData: {} });
if (worker) worker.once('exit', (code) => console.log('exit', code));
else console.log('no thread');
