import { afterAll, afterEach, beforeAll, beforeEach, describe, it } from 'vitest';
import { fileService } from './services.ts';

const redis = fileService('redis');
const useIt = () => void redis.url;

for (const hook of [beforeAll, beforeEach, afterEach, afterAll]) hook(useIt);
it('uses the server', useIt);
describe('inside', () => {
  for (const hook of [beforeAll, beforeEach, afterEach, afterAll]) hook(useIt);
  it('uses the server', useIt);
});
