/** Runs programs as a user that is not root, even if only root may enter the folders above the checkout. */
import { statSync } from 'node:fs'
import { dirname } from 'node:path'

const NOBODY = 65_534

/** Why this process cannot change to another user; false if it can. It fits a test's `skip` option. */
export const cannotBeNobody: string | false = process.getuid?.() === 0 ? false : 'needs root to become somebody else'

/**
 * The words before a command and its arguments. `reads` are the files that the program must be able to read. If their
 * modes, or those of the folders above, forbid that, the process gets the one capability to read and enter everything;
 * it still cannot change what root owns.
 */
export function asNobody(reads: readonly string[]): readonly [command: string, ...args: string[]] {
  const capability = reads.every(isOpen) ? [] : ['--inh-caps=+dac_read_search', '--ambient-caps=+dac_read_search']
  return ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', ...capability]
}

/** Whether every user may read the file and enter its folders. */
function isOpen(path: string): boolean {
  if ((statSync(path).mode & 0o004) === 0) return false
  for (let folder = dirname(path); folder !== '/'; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return false
  }
  return true
}
