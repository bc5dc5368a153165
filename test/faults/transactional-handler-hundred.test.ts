import { test } from 'vitest';
import { killRelays } from './transactional-kills.ts';

test('a hundred relays killed between effect and settle', { timeout: 600_000 }, () => killRelays(100));
