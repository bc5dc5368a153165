// A process that owns a private server, to be killed by services.test.ts.
import { startService } from '../../services/private-service.ts';

const { port, folder } = await startService('redis');
process.stdout.write(`${JSON.stringify({ port, folder })}\n`);
setInterval(() => {}, 1_000);
