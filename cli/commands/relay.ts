/** `sealane relay serve`: a relay on port 443, for links that nothing else joins. */
import type { Command } from 'commander'
import { UserError, parseHostPort } from '../../runtime/runtime.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import {
  type CommandContext,
  collect,
  logLevelOption,
  parsed,
  statusListenOption,
  subcommand,
} from '../context/context.ts'

interface ServeOptions {
  readonly listen: string
  readonly ca: readonly string[]
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly plain: boolean
  readonly state: string
  readonly memberMbit?: number
  readonly pairMbit?: number
  readonly statusListen: readonly string[]
  readonly logLevel: LogThreshold
}

const MAX_MBIT = 100_000

const listenAddress = (text: string): string => {
  parseHostPort(text, '--listen', true)
  return text
}

const mbit =
  (flag: string) =>
  (text: string): number => {
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= 1 && value <= MAX_MBIT) return value
    throw new UserError(`${flag} ${JSON.stringify(text)}: expected 1 to ${MAX_MBIT}`, { exitCode: 2 })
  }

export function addRelayCommand(program: Command, context: CommandContext): void {
  const about = 'Runs a relay on TCP port 443 for gateways that reach each other in no other way.'
  const relay = subcommand(program, 'relay', about, 'sealane relay serve --ca ca.crt')
  const text =
    'Forwards encrypted packets between gateways of a clusterset over WebSockets. Knows no key and sees no plaintext. ' +
    'Members learn of it by "sealane broker relay add" or "sealane broker serve --relay".'
  subcommand(relay, 'serve', text, 'sealane relay serve --listen 0.0.0.0:443 --ca ca.crt')
    .option('--listen <host:port>', 'TCP address and port that gateways call', parsed(listenAddress), '[::]:443')
    .requiredOption(
      '--ca <file>',
      'authorities of a clusterset in PEM: ca.crt of its broker or of a member; may be repeated; read again when it changes',
      collect((file: string) => file),
    )
    .option('--tls-cert <file>', 'certificate for the name that gateways call, in PEM, with its chain')
    .option('--tls-key <file>', 'its key, in PEM')
    .option('--plain', 'without TLS: a proxy on this machine ends it; listens on loopback only', false)
    .option('--state <dir>', 'without --tls-cert: folder for the key that the relay makes', '/var/lib/sealane-relay')
    .option(
      '--member-mbit <n>',
      'most Mbit/s that all gateways of one member send (default: 1000)',
      parsed(mbit('--member-mbit')),
    )
    .option('--pair-mbit <n>', 'most Mbit/s from one gateway to another (default: 500)', parsed(mbit('--pair-mbit')))
    .addOption(
      statusListenOption('address that serves /readyz and /metrics; may be given several times', '127.0.0.1:9476'),
    )
    .addOption(logLevelOption())
    .action(async (options: ServeOptions) => {
      const { tlsCert, tlsKey, plain, listen, ...rest } = options
      if ((tlsCert === undefined) !== (tlsKey === undefined))
        throw new UserError('--tls-cert and --tls-key: expected both or neither', { exitCode: 2 })
      if (plain && tlsCert !== undefined)
        throw new UserError('--plain: expected without --tls-cert and --tls-key', { exitCode: 2 })
      const { host, port } = parseHostPort(listen, '--listen', true)
      if (plain && host !== '127.0.0.1' && host !== '::1')
        throw new UserError(`--listen ${JSON.stringify(listen)}: expected 127.0.0.1 or [::1] with --plain`, {
          exitCode: 2,
        })
      const tls = tlsCert === undefined || tlsKey === undefined ? {} : { tls: { certificate: tlsCert, key: tlsKey } }
      const onListening = (pin: string | undefined): void => {
        if (pin === undefined) return
        const where = port === 443 ? '' : `:${port}`
        context.output.remark(`for the broker: --relay wss://NAME-OR-ADDRESS${where}/#${pin}\n`)
      }
      const { serveRelayProcess } = await import('../../compose/relay/relay.ts')
      await serveRelayProcess({ ...rest, listen, plain, ...tls, onListening }, context.signal)
    })
}
