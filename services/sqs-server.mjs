// node services/sqs-server.mjs <port>
// Its own command line listens on all addresses.
import { buildApp } from 'fauxqs';
import { INVALID_MESSAGE_BODY_CHAR } from '../node_modules/fauxqs/dist/sqs/sqsTypes.js';

// SQS takes characters beyond U+FFFF. fauxqs 1.9 means to, and looks at their halves.
INVALID_MESSAGE_BODY_CHAR.compile('[^\\t\\n\\r\\u{20}-\\u{D7FF}\\u{E000}-\\u{FFFD}\\u{10000}-\\u{10FFFF}]', 'u');

const app = buildApp({ logger: false });
await app.listen({ host: '127.0.0.1', port: Number(process.argv[2]) });
process.once('SIGTERM', () => app.close());
