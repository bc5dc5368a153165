// node services/sqs-server.mjs <port>
// Its own command line listens on all addresses.
import { buildApp } from 'fauxqs';

const app = buildApp({ logger: false });
await app.listen({ host: '127.0.0.1', port: Number(process.argv[2]) });
process.once('SIGTERM', () => app.close());
