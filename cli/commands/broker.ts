/** `sealane broker serve` */
import type { Command } from 'commander'
import { DEFAULT_BROKER_PORT, parseBrokerAddress } from '../../protocol/broker-address.ts'
import { LOG_LEVELS, type LogThreshold } from '../../runtime/pino-logger.ts'
import { UserError } from '../../runtime/user-error.ts'
import { type CommandContext, collect, parsed, stateOption, subcommand } from '../context.ts'

interface ServeOptions {
  readonly state: string
  readonly listen: string
  readonly advertise?: readonly string[]
  readonly statusListen: string
  readonly clusterset: string
  readonly globalRange?: string
  readonly clustersetIpRange?: string
  readonly allowNamespace?: readonly string[]
  readonly logLevel: LogThreshold
}

const address =
  (flag: string) =>
  (text: string): string => {
    parseBrokerAddress(text, flag)
    return text
  }

export function addBrokerCommand(program: Command, { signal }: CommandContext): void {
  const broker = subcommand(
    program,
    'broker',
    'Runs the broker.',
    'sealane broker serve --advertise broker.example.org:7443',
  )
  subcommand(
    broker,
    'serve',
    'Serves until stopped. State and certificate authority are made on first start.',
    'sealane broker serve --state /var/lib/sealane/broker --advertise 192.0.2.1:7443',
  )
    .addOption(stateOption())
    .option('--listen <host:port>', 'where to listen', parsed(address('--listen')), `0.0.0.0:${DEFAULT_BROKER_PORT}`)
    .option(
      '--advertise <host:port>',
      'where members find it; goes into tokens; may be given several times',
      collect(address('--advertise')),
    )
    .option('--status-listen <host:port>', 'where /readyz and /metrics are', '127.0.0.1:9470')
    .option('--clusterset <name>', 'name of the clusterset, on first start', 'default')
    .option('--global-range <cidr>', 'range of global addresses, on first start')
    .option('--clusterset-ip-range <cidr>', 'range of clusterset IPs, on first start')
    .option(
      '--allow-namespace <name>',
      'a kube-* namespace that may be exported all the same',
      collect((text) => text),
    )
    .option('--log-level <level>', LOG_LEVELS.join(', '), parsed(parseLogLevel), 'info')
    .action(async (options: ServeOptions) => {
      const advertise = options.advertise ?? []
      if (advertise.length === 0) {
        throw new UserError('--advertise: expected at least one host:port under which members reach this broker', {
          exitCode: 2,
        })
      }
      const { serveBrokerProcess } = await import('../compose-broker.ts')
      await serveBrokerProcess({ ...options, advertise }, signal)
    })
}

export function parseLogLevel(text: string): LogThreshold {
  const level = LOG_LEVELS.find((candidate) => candidate === text)
  if (level === undefined) throw new UserError(`--log-level ${JSON.stringify(text)}: expected ${LOG_LEVELS.join(', ')}`)
  return level
}
