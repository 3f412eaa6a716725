/** Prints the tokens of `sealane token create`, writes them to a file and reads them again. */
import { open, readFile, rm } from 'node:fs/promises'
import { type Readable, addAbortSignal } from 'node:stream'
import { UserError, checkReadable, messageOf } from '../../runtime/runtime.ts'
import { type KubeTarget, quoted, shellWord } from '../context/context.ts'

export interface TokenText {
  /** Lines for a shell. */
  readonly answer: string
  /** A remark for people. Empty if the lines are complete. */
  readonly remark: string
}

export interface TokenTextInit {
  readonly token: string
  /** The cluster of the broker. Undefined if the broker is on this machine; then the lines are for plain sites. */
  readonly broker: KubeTarget | undefined
  /** The contexts of the broker's kubeconfig except its own. */
  readonly others: readonly string[]
  /** The only cluster that may use the token. */
  readonly cluster: string | undefined
  /** The file that already contains the token. Then only the line with the join is printed. */
  readonly file?: string | undefined
}

const FILE = 'token.txt'
/** A placeholder that explains itself if it is pasted unchanged: no kubeconfig has a context of this name. */
const PLACE = 'CONTEXT'

/** The output of `sealane token create`: lines to paste that keep the token out of the process list. Pure. */
export function tokenText({ token, broker, others, cluster, file: written }: TokenTextInit): TokenText {
  const write = written === undefined ? `(umask 077; rm -f ${FILE}; cat > ${FILE}) <<'EOF'\n${token}\nEOF\n` : ''
  const from = `--token-file ${shellWord(written ?? FILE)}`
  if (broker === undefined) {
    return { answer: `${write}sealane join --site site.yaml ${from}\n`, remark: '' }
  }
  const known = others.length === 1 ? others[0] : others.find((name) => name === cluster)
  const file =
    broker.kubeconfig === undefined || known === undefined ? '' : `--kubeconfig ${shellWord(broker.kubeconfig)} `
  const answer = `${write}sealane join ${file}--context ${shellWord(known ?? PLACE)} ${from}\n`
  if (known !== undefined) return { answer, remark: '' }
  const list = others.length === 0 ? '' : `, one of ${others.join(', ')}`
  return { answer, remark: `replace ${PLACE} with the kubeconfig context of the cluster to join${list}\n` }
}

// Reads a join token from the command line, a file, stdin or the environment. It is never logged.

export interface TokenOptions {
  readonly token?: string
  readonly tokenFile?: string
}

interface TokenSources {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly stdin: Readable
  readonly signal: AbortSignal
}

/** The maximum number of characters read from stdin, far more than a token has. */
const MAX_INPUT = 65_536

/**
 * Undefined if no option and no variable gives a token. Throws UserError: with exit code 2 if there is more than one,
 * with 1 if the token cannot be read.
 */
export async function readTokenIfGiven(
  options: TokenOptions,
  { env, stdin, signal }: TokenSources,
): Promise<string | undefined> {
  const { token, tokenFile } = options
  if (token !== undefined && tokenFile !== undefined) {
    throw new UserError('--token and --token-file: expected only one of them', { exitCode: 2 })
  }
  if (token !== undefined) return token
  if (tokenFile === '-') return notEmpty('standard input', await readAll(addAbortSignal(signal, stdin)))
  if (tokenFile !== undefined) return notEmpty(`--token-file ${quoted(tokenFile)}`, await readTokenFile(tokenFile))
  const inherited = env['SEALANE_TOKEN']
  return inherited === '' ? undefined : inherited
}

export function noToken(): UserError {
  return new UserError('no join token: expected --token, --token-file or SEALANE_TOKEN', {
    exitCode: 2,
    hint: 'create a token on the broker: sealane token create',
  })
}

async function readAll(stream: Readable): Promise<string> {
  let text = ''
  for await (const chunk of stream) {
    text += String(chunk)
    if (text.length > MAX_INPUT)
      throw new UserError(`standard input: expected a join token, got more than ${MAX_INPUT} bytes`)
  }
  return text
}

async function readTokenFile(file: string): Promise<string> {
  try {
    checkReadable(file)
    return await readFile(file, 'utf8')
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? 'no such file' : message
    throw new UserError(`--token-file ${quoted(file)}: ${reason}`, { cause })
  }
}

function notEmpty(source: string, text: string): string {
  if (text.trim() === '') throw new UserError(`${source}: expected a join token, but it is empty`)
  return text
}

// The file that `sealane token create --out` writes: a new file that only its owner can read.

/**
 * Creates the file before the token, so that no token is created in vain. Deletes the file again if `make` or the
 * writing fails. Returns the result of `make`. Throws UserError if the file exists or cannot be created, with the id of
 * the token if that could not be written, and what `make` throws.
 */
export async function writeTokenFile<T extends { readonly text: string; readonly id?: string }>(
  file: string,
  make: () => Promise<T>,
): Promise<T> {
  const handle = await open(file, 'wx', 0o600).catch((cause: unknown) => {
    throw cannot(file, cause as NodeJS.ErrnoException)
  })
  try {
    const made = await make()
    try {
      await handle.writeFile(`${made.text}\n`)
      // Some file systems notice only then that they are full.
      await handle.sync()
    } catch (cause) {
      const which = made.id === undefined ? 'the token' : `token ${made.id}`
      throw new UserError(`--out ${file}: ${messageOf(cause)}: ${which} was made, and is lost with the file`, {
        hint: 'nobody has the token, so nobody can join with it; make another one once the file can be written',
        cause,
      })
    }
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
  return new UserError(`--out ${file}: the file already exists`, { hint: 'choose another name', cause })
}
