/** Programs as somebody who is not root, also where only root may enter the folders above the checkout. */
import { statSync } from 'node:fs'
import { dirname } from 'node:path'

const NOBODY = 65_534

/** Why nobody else can be become here; false when it can. A test's `skip` option takes it as it is. */
export const cannotBeNobody: string | false = process.getuid?.() === 0 ? false : 'needs root to become somebody else'

/**
 * What to put before a command and its arguments. `reads` are the files that it must be able to read. Where their
 * modes, or those of the folders above, say no, the process gets the one capability to read and enter everything: it
 * may still write and change nothing that root owns.
 */
export function asNobody(reads: readonly string[]): readonly [command: string, ...args: string[]] {
  const capability = reads.every(isOpen) ? [] : ['--inh-caps=+dac_read_search', '--ambient-caps=+dac_read_search']
  return ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', ...capability]
}

/** Everybody may read the file and come to it. */
function isOpen(path: string): boolean {
  if ((statSync(path).mode & 0o004) === 0) return false
  for (let folder = dirname(path); folder !== '/'; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return false
  }
  return true
}
