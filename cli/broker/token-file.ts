/** The file that `sealane token create --out` writes: a new one, that its owner alone reads. */
import { open, rm } from 'node:fs/promises'
import { UserError } from '../../runtime/user-error.ts'

/**
 * Makes the file before there is a token, so that none is made in vain; it is gone again where `make` or the writing
 * fails. Gives what `make` gave. Throws UserError where the file exists or cannot be made, and what `make` throws.
 */
export async function writeTokenFile<T extends { readonly text: string }>(
  file: string,
  make: () => Promise<T>,
): Promise<T> {
  const handle = await open(file, 'wx', 0o600).catch((cause: unknown) => {
    throw cannot(file, cause as NodeJS.ErrnoException)
  })
  try {
    const made = await make()
    await handle.writeFile(`${made.text}\n`)
    return made
  } catch (error) {
    await rm(file, { force: true })
    throw error
  } finally {
    await handle.close()
  }
}

function cannot(file: string, cause: NodeJS.ErrnoException): UserError {
  if (cause.code !== 'EEXIST') return new UserError(`--out ${file}: ${cause.message}`, { cause })
  return new UserError(`--out ${file}: there is a file of that name already`, { hint: 'name another one', cause })
}
