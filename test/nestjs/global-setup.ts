import { installPackages } from '../../scripts/private-packages.ts';

/** Before any test file is loaded, as for test/adapters. */
export default function setup(): void {
  for (const version of [10, 11, 12]) {
    installPackages(new URL(`nest${version}/`, import.meta.url), `Nest ${version} for the tests of postcommit/nestjs`);
  }
}
