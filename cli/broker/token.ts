/** Tokens of `sealane token create`: printed, kept in a file, read again. */
import { open, readFile, rm } from 'node:fs/promises'
import { type Readable, addAbortSignal } from 'node:stream'
import { UserError } from '../../runtime/runtime.ts'
import { type KubeTarget, quoted, shellWord } from '../context/context.ts'

export interface TokenText {
  /** Lines for a shell. */
  readonly answer: string
  /** For a person; empty where nothing is left open. */
  readonly remark: string
}

export interface TokenTextInit {
  readonly token: string
  /** Of the broker; undefined: it is on this machine, and so sites join. */
  readonly broker: KubeTarget | undefined
  /** Contexts of the broker's kubeconfig, but for its own. */
  readonly others: readonly string[]
  /** The only cluster that may use the token. */
  readonly cluster: string | undefined
  /** Has the token already: only the line that joins is printed. */
  readonly file?: string | undefined
}

const FILE = 'token.txt'
/** Says itself what is meant where it is pasted as it is: no kubeconfig has it. */
const PLACE = 'CONTEXT'

/** What `sealane token create` prints: lines to paste, that keep the token out of the process list. Pure. */
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
  return { answer, remark: `${PLACE} is the kubeconfig's context of the cluster that joins${list}\n` }
}

// Where a join token comes from: the command line, a file, standard input, or the environment. Never into a log.

export interface TokenOptions {
  readonly token?: string
  readonly tokenFile?: string
}

interface TokenSources {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly stdin: Readable
  readonly signal: AbortSignal
}

/** Far more than a token has. */
const MAX_INPUT = 65_536

/** Throws UserError: exit code 2 where none or two are given, 1 where it cannot be read. */
export async function readTokenText(options: TokenOptions, { env, stdin, signal }: TokenSources): Promise<string> {
  const { token, tokenFile } = options
  if (token !== undefined && tokenFile !== undefined) {
    throw new UserError('--token and --token-file: expected one of them, got both', { exitCode: 2 })
  }
  if (token !== undefined) return token
  if (tokenFile === '-') return notEmpty('standard input', await readAll(addAbortSignal(signal, stdin)))
  if (tokenFile !== undefined) return notEmpty(`--token-file ${quoted(tokenFile)}`, await readTokenFile(tokenFile))
  const inherited = env['SEALANE_TOKEN']
  if (inherited !== undefined && inherited !== '') return inherited
  throw noToken()
}

export function noToken(): UserError {
  return new UserError('no join token: expected --token, --token-file or SEALANE_TOKEN', {
    exitCode: 2,
    hint: 'on the broker: sealane token create',
  })
}

async function readAll(stream: Readable): Promise<string> {
  let text = ''
  for await (const chunk of stream) {
    text += String(chunk)
    if (text.length > MAX_INPUT)
      throw new UserError(`standard input: expected a join token, got over ${MAX_INPUT} bytes`)
  }
  return text
}

async function readTokenFile(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? 'no such file' : message
    throw new UserError(`--token-file ${quoted(file)}: ${reason}`, { cause })
  }
}

function notEmpty(source: string, text: string): string {
  if (text.trim() === '') throw new UserError(`${source}: expected a join token, got nothing`)
  return text
}

// The file that `sealane token create --out` writes: a new one, that its owner alone reads.

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
