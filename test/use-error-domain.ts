/** Gives tap the module error-domain.ts. run-files.ts loads this before each test file. */
import { registerHooks } from 'node:module'

const DOMAIN = import.meta.resolve('./error-domain.ts')

registerHooks({
  resolve: (specifier, context, next) =>
    specifier === 'async-hook-domain' ? { url: DOMAIN, shortCircuit: true } : next(specifier, context),
})
