/** Where a join token comes from: the command line, a file, standard input, or the environment. Never into a log. */
import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { UserError } from '../runtime/user-error.ts'

export interface TokenOptions {
  readonly token?: string
  readonly tokenFile?: string
}

export async function readTokenText(options: TokenOptions, env: NodeJS.ProcessEnv): Promise<string> {
  if (options.token !== undefined && options.tokenFile !== undefined) {
    throw new UserError('--token and --token-file: expected one of them, got both', { exitCode: 2 })
  }
  if (options.token !== undefined) return options.token
  if (options.tokenFile === '-') return text(process.stdin)
  if (options.tokenFile !== undefined) return readTokenFile(options.tokenFile)
  const inherited = env['SEALANE_TOKEN']
  if (inherited !== undefined && inherited !== '') return inherited
  throw new UserError('no join token: expected --token, --token-file or SEALANE_TOKEN', {
    exitCode: 2,
    hint: 'on the broker: sealane token create',
  })
}

async function readTokenFile(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new UserError(`--token-file ${file}: ${(cause as Error).message}`, { cause })
  }
}
