/** `sealane broker serve` */
import type { Command } from 'commander'
import { parseDnsLabel } from '../../model/ids.ts'
import { parsePrefix } from '../../model/addresses/ip.ts'
import { DEFAULT_BROKER_PORT, parseBrokerAddress } from '../../protocol/broker-address.ts'
import { parseHostPort } from '../../runtime/host-port.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import type { LogThreshold } from '../../runtime/logging/logger.ts'
import { UserError } from '../../runtime/user-error.ts'
import {
  type CommandContext,
  choiceOption,
  collect,
  logLevelOption,
  parsed,
  stateOption,
  statusListenOption,
  subcommand,
} from '../context.ts'

import { addBrokerBackupCommands } from './broker-backup.ts'
import { addBrokerDeployCommand } from './broker-deploy.ts'

interface ServeOptions {
  readonly state: string
  readonly listen: string
  readonly advertise?: readonly string[]
  readonly statusListen: readonly string[]
  readonly clusterset: string
  readonly globalRange?: string
  readonly clustersetIpRange?: string
  readonly allowNamespace?: readonly string[]
  readonly externalTrafficPolicy?: 'Local' | 'Cluster'
  readonly acceptEmpty?: true | number
  readonly logLevel: LogThreshold
}

/** Parsers that check and give the text itself: the broker reads it again. */
const address =
  (flag: string) =>
  (text: string): string => {
    parseBrokerAddress(text, flag)
    return text
  }

const listenAddress = (text: string): string => {
  parseHostPort(text, '--listen', true)
  return text
}

const time = (text: string): number => {
  const ms = Date.parse(text)
  if (Number.isFinite(ms)) return ms
  throw new UserError(`--accept-empty ${JSON.stringify(text)}: expected a time such as 2026-01-31T12:00:00Z`, {
    exitCode: 2,
  })
}

const range =
  (flag: string) =>
  (text: string): string => {
    parsePrefix(text, flag)
    return text
  }

const label =
  (flag: string) =>
  (text: string): string =>
    parseDnsLabel(text, flag)

export function addBrokerCommand(program: Command, context: CommandContext): void {
  const { signal } = context
  const broker = subcommand(
    program,
    'broker',
    'Runs the broker, here or on a cluster.',
    'sealane broker serve --advertise broker.example.org:7443',
  )
  subcommand(
    broker,
    'serve',
    'Serves until stopped. State and certificate authority are made on first start.',
    'sealane broker serve --state /var/lib/sealane/broker --advertise 192.0.2.1:7443',
  )
    .addOption(stateOption())
    .option('--listen <host:port>', 'where to listen', parsed(listenAddress), `0.0.0.0:${DEFAULT_BROKER_PORT}`)
    .option(
      '--advertise <host:port>',
      'where members find it; goes into tokens; may be given several times',
      collect(address('--advertise')),
    )
    .addOption(statusListenOption('where /readyz and /metrics are; may be given several times', '127.0.0.1:9470'))
    .option('--clusterset <name>', 'name of the clusterset, on first start', parsed(label('--clusterset')), 'default')
    .option('--global-range <cidr>', 'range of global addresses, on first start', parsed(range('--global-range')))
    .option(
      '--clusterset-ip-range <cidr>',
      'range of clusterset IPs, on first start',
      parsed(range('--clusterset-ip-range')),
    )
    .option(
      '--allow-namespace <name>',
      'default, a kube-* or another guarded namespace that may be exported all the same',
      collect(label('--allow-namespace')),
    )
    .addOption(
      choiceOption(
        '--external-traffic-policy <policy>',
        'of the Service in front, if there is one: with Cluster, addresses of callers are not their own',
        ['Local', 'Cluster'] as const,
      ).env('SEALANE_EXTERNAL_TRAFFIC_POLICY'),
    )
    .option(
      '--accept-empty [time]',
      'start also with a state that is empty, or older than what was given away; with a time: if it was so then',
      parsed(time),
    )
    .addOption(logLevelOption())
    .action(async (options: ServeOptions) => {
      const advertise = options.advertise ?? []
      if (advertise.length === 0) {
        throw new UserError('--advertise: expected at least one host:port under which members reach this broker', {
          exitCode: 2,
        })
      }
      const { serveBrokerProcess } = await import('../../compose/parts/broker.ts')
      const { acceptEmpty } = options
      const accepted = acceptEmpty === true ? new SystemClock().now() : acceptEmpty
      const more = accepted === undefined ? {} : { acceptEmptyAtMs: accepted }
      await serveBrokerProcess({ ...options, advertise, ...more }, signal)
    })
  addBrokerDeployCommand(broker, context)
  addBrokerBackupCommands(broker, context)
}
