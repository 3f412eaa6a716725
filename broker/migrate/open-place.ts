/** From what a command names to the place that it means. */
import { resolve } from 'node:path'
import { UserError } from '../../runtime/user-error.ts'
import { SqlitePlace } from './sqlite-place.ts'
import type { StorePlace } from './store-place.ts'

const SQLITE = 'sqlite'

/**
 * `sqlite` is the state directory, `sqlite:DIRECTORY` another one. `flag` is for the message. Throws UserError for what
 * is none of these.
 */
export function openPlace(
  text: string,
  { flag, stateDir }: { readonly flag: string; readonly stateDir: string },
): StorePlace {
  if (text === SQLITE) return new SqlitePlace(resolve(stateDir))
  if (text.startsWith(`${SQLITE}:`) && text.length > SQLITE.length + 1)
    return new SqlitePlace(resolve(text.slice(SQLITE.length + 1)))
  throw new UserError(
    `${flag} ${JSON.stringify(text)}: expected ${SQLITE} (the directory of --state) or ${SQLITE}:DIRECTORY`,
    {
      exitCode: 2,
    },
  )
}
