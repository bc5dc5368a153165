// As test/adapters/install.ts.
import { installPackages } from '../../scripts/private-packages.ts';

installPackages(new URL('./', import.meta.url), 'the frameworks for tests');
