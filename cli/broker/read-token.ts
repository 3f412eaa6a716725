/** Where a join token comes from: the command line, a file, standard input, or the environment. Never into a log. */
import { readFile } from 'node:fs/promises'
import { type Readable, addAbortSignal } from 'node:stream'
import { UserError } from '../../runtime/user-error.ts'
import { quoted } from '../context.ts'

export interface TokenOptions {
  readonly token?: string
  readonly tokenFile?: string
}

export interface TokenSources {
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
