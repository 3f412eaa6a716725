/** `sealane broker serve` and the tree of `sealane broker` commands. */
import { isAbsolute, resolve } from 'node:path'
import { type Command, Option } from 'commander'
import { parseDnsLabel } from '../../model/model.ts'
import { parsePrefix } from '../../model/addresses/addresses.ts'
import { MAX_RELAYS, RELAY_ADDRESS_FORM, readRelayAddress } from '../../model/lanes/lanes.ts'
import { DEFAULT_BROKER_PORT, parseBrokerAddress } from '../../protocol/protocol.ts'
import { DEFAULT_RENEWAL_GRACE_MS, MAX_RENEWAL_GRACE_MS } from '../../protocol/identity/identity.ts'
import { UserError, parseHostPort } from '../../runtime/runtime.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { LogThreshold } from '../../runtime/logging/logging.ts'
import {
  type CommandContext,
  approveOption,
  choiceOption,
  collect,
  durationOption,
  logLevelOption,
  parsed,
  stateOption,
  statusListenOption,
  subcommand,
} from '../context/context.ts'

import type { EtcdStoreConfig } from '../../compose/broker/broker.ts'
import { addQuotaOptions } from '../broker/broker.ts'
import {
  addBrokerBackupCommands,
  addBrokerMigrateCommand,
  addBrokerStatusCommand,
  addBrokerVerifyCommand,
} from './broker-store.ts'
import { addBrokerCaCommands } from './broker-ca.ts'
import { addBrokerClustersetCommands } from './broker-clusterset.ts'
import { addBrokerDeployCommand } from './broker-deploy.ts'
import { addBrokerPublishedCommands } from './broker-published.ts'
import { addBrokerRelayCommands } from './broker-relay.ts'

/** The value of `--audit-log` that turns the audit log off. */
const AUDIT_OFF = 'off'
const MIB = 1024 * 1024
const DEFAULT_AUDIT_MIB = 32
const MAX_AUDIT_MIB = 1_000_000
const DEFAULT_AUDIT_KEEP = 8
const MAX_AUDIT_KEEP = 1000
const MAX_CONNECTION_AGE_MS = 24 * 3_600_000
const MAX_DRAIN_MS = 10 * 60_000

interface ServeOptions {
  readonly state: string
  readonly listen: string
  readonly adminListen?: string
  readonly advertise?: readonly string[]
  readonly statusListen: readonly string[]
  readonly clusterset: string
  readonly globalRange?: string
  readonly clustersetIpRange?: string
  readonly allowNamespace?: readonly string[]
  readonly externalTrafficPolicy?: 'Local' | 'Cluster'
  readonly acceptEmpty?: true | number
  readonly approve?: true | 'yes' | 'no'
  readonly defaultAccess?: 'allow' | 'deny'
  readonly topologyFrom?: 'commands' | 'object'
  readonly relay?: readonly string[]
  readonly relayHere?: true | 'yes' | 'no'
  readonly auditLog: string
  readonly auditLogSize: number
  readonly auditLogKeep: number
  readonly quotaRecords?: number
  readonly quotaBytes?: number
  readonly quotaChanges?: number
  readonly quotaStreams?: number
  readonly maxMembers?: number
  readonly renewalGrace?: number
  readonly store?: string
  readonly etcdCa?: string
  readonly etcdCert?: string
  readonly etcdKey?: string
  readonly etcdPasswordFile?: string
  readonly connectionAge: number
  readonly drain: number
  readonly caDir?: string
  readonly caSigner?: string
  readonly caSignerArg?: readonly string[]
  readonly logLevel: LogThreshold
}

/** Parsers that only validate: they return the text itself, because the broker parses it again. */
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

/** An empty value in the environment means "not set". */
const adminAddress = (text: string): string => {
  if (text !== '') parseHostPort(text, '--admin-listen', true)
  return text
}

const time = (text: string): number => {
  const ms = Date.parse(text)
  if (Number.isFinite(ms)) return ms
  throw new UserError(`--accept-empty ${JSON.stringify(text)}: expected a time such as 2026-01-31T12:00:00Z`, {
    exitCode: 2,
  })
}

const count =
  (flag: string, min: number, max: number) =>
  (text: string): number => {
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= min && value <= max) return value
    throw new UserError(`${flag} ${JSON.stringify(text)}: expected ${min} to ${max}`, { exitCode: 2 })
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

const relayAddress = (text: string): string => {
  if (readRelayAddress(text) !== undefined) return text
  throw new UserError(`--relay ${JSON.stringify(text)}: expected ${RELAY_ADDRESS_FORM}`, { exitCode: 2 })
}

/** File names become absolute, because other commands read them later from another working directory. */
function storeOf(options: ServeOptions): EtcdStoreConfig | undefined {
  const { store: url, etcdCa, etcdCert, etcdKey, etcdPasswordFile } = options
  if (url === undefined) {
    const flags = { '--etcd-ca': etcdCa, '--etcd-cert': etcdCert, '--etcd-key': etcdKey }
    const given = Object.entries({ ...flags, '--etcd-password-file': etcdPasswordFile }).find(([, file]) => file)
    if (given === undefined) return undefined
    throw new UserError(`${given[0]}: expected --store etcd://… as well`, { exitCode: 2 })
  }
  const file = <K extends string>(name: K, path: string | undefined): Partial<Record<K, string>> =>
    path === undefined ? {} : ({ [name]: resolve(path) } as Partial<Record<K, string>>)
  return {
    url,
    ...file('caFile', etcdCa),
    ...file('certificateFile', etcdCert),
    ...file('keyFile', etcdKey),
    ...file('passwordFile', etcdPasswordFile),
  }
}

const absolutePath = (text: string): string => {
  if (isAbsolute(text)) return text
  throw new UserError(`--ca-signer ${JSON.stringify(text)}: expected the absolute path of a command`, { exitCode: 2 })
}

/**
 * Where the authority's key is if it is not in the state directory. Throws UserError for signer arguments without a
 * command.
 */
function authorityOf({ caDir, caSigner, caSignerArg = [] }: ServeOptions): {
  readonly authorityDir?: string
  readonly signer?: { readonly command: string; readonly args: readonly string[] }
} {
  if (caSigner === undefined && caSignerArg.length > 0)
    throw new UserError('--ca-signer-arg: expected --ca-signer as well', { exitCode: 2 })
  const isGiven = caDir !== undefined && caDir !== ''
  if (caSigner !== undefined && !isGiven)
    throw new UserError('--ca-signer: expected --ca-dir as well, with the certificate of the key that signs', {
      exitCode: 2,
    })
  return {
    ...(isGiven ? { authorityDir: caDir } : {}),
    ...(caSigner === undefined ? {} : { signer: { command: caSigner, args: caSignerArg } }),
  }
}

export function addBrokerCommand(program: Command, context: CommandContext): void {
  const { signal } = context
  const broker = subcommand(
    program,
    'broker',
    'Runs and manages the broker, on this machine or on a cluster.',
    'sealane broker serve --advertise broker.example.org:7443',
  )
  const serve = subcommand(
    broker,
    'serve',
    'Runs the broker until it is stopped. The first start creates its state and its certificate authority.',
    'sealane broker serve --state /var/lib/sealane/broker --advertise 192.0.2.1:7443',
  )
    .addOption(stateOption("the broker's state directory"))
    .option('--listen <host:port>', 'address to listen on', parsed(listenAddress), `[::]:${DEFAULT_BROKER_PORT}`)
    .option(
      '--advertise <host:port>',
      'address at which members reach the broker, which tokens contain; may be given several times',
      collect(address('--advertise')),
    )
    .addOption(
      new Option(
        '--admin-listen <host:port>',
        'loopback address of the admin service, for port-forwards to a pod; every local user can administer the broker through it ' +
          '(default: only the socket admin.sock in the state directory)',
      )
        .argParser(parsed(adminAddress))
        .env('SEALANE_ADMIN_LISTEN'),
    )
    .addOption(
      statusListenOption('address that serves /readyz and /metrics; may be given several times', '127.0.0.1:9470'),
    )
    .option(
      '--clusterset <name>',
      'name of the clusterset; fixed at the first start (for further ones: broker clusterset create)',
      parsed(label('--clusterset')),
      'default',
    )
    .option(
      '--global-range <cidr>',
      'range of global addresses; fixed at the first start',
      parsed(range('--global-range')),
    )
    .option(
      '--clusterset-ip-range <cidr>',
      'range of clusterset IPs; fixed at the first start',
      parsed(range('--clusterset-ip-range')),
    )
    .option(
      '--allow-namespace <name>',
      'also allow exports from this guarded namespace, such as default or kube-*; may be given several times',
      collect(label('--allow-namespace')),
    )
    .addOption(
      choiceOption(
        '--external-traffic-policy <policy>',
        "externalTrafficPolicy of the broker's Service, if it has one; with Cluster, the broker does not see the addresses of callers",
        ['Local', 'Cluster'] as const,
      ).env('SEALANE_EXTERNAL_TRAFFIC_POLICY'),
    )
    .option(
      '--accept-empty [time]',
      'start even if the state is empty or older than the state that members have; with a time: only if that was already so then',
      parsed(time),
    )
    .addOption(approveOption())
    .addOption(
      choiceOption(
        '--default-access <access>',
        'whether services without an AccessPolicy are offered to all members (default: as set before, at first allow)',
        ['allow', 'deny'] as const,
      ).env('SEALANE_DEFAULT_ACCESS'),
    )
    .addOption(
      choiceOption(
        '--topology-from <source>',
        'what sets the topology: commands, or also object Topology default in the cluster of this broker (default: commands)',
        ['commands', 'object'] as const,
      ).env('SEALANE_TOPOLOGY_FROM'),
    )
    .option(
      '--relay <url>',
      'relay on port 443 (sealane relay serve) that members use where no UDP passes, besides those of "broker relay add"; may be given several times',
      collect(relayAddress),
    )
    .addOption(
      choiceOption(
        '--relay-here [yes|no]',
        'also serve a relay on the port of the broker, for some 200 Mbit/s in all, which members learn of if --relay is not given',
        ['yes', 'no'],
      ),
    )
    .addOption(
      new Option(
        '--audit-log <file>',
        `audit log, one line of JSON for each event; "-": standard output, "${AUDIT_OFF}": no audit log`,
      )
        .env('SEALANE_AUDIT_LOG')
        .default(AUDIT_OFF),
    )
    .addOption(
      new Option('--audit-log-size <MiB>', 'size at which the audit log is rotated; 0: never')
        .argParser(parsed(count('--audit-log-size', 0, MAX_AUDIT_MIB)))
        .default(DEFAULT_AUDIT_MIB),
    )
    .addOption(
      new Option('--audit-log-keep <count>', 'number of rotated files to keep')
        .argParser(parsed(count('--audit-log-keep', 1, MAX_AUDIT_KEEP)))
        .default(DEFAULT_AUDIT_KEEP),
    )
    .addOption(
      new Option(
        '--ca-dir <directory>',
        'directory with certificates (*.crt) and keys (*.key) of authorities, such as a mounted Secret; it does not have to exist',
      ).env('SEALANE_CA_DIR'),
    )
    .option(
      '--ca-signer <command>',
      'absolute path of a command that signs for the certificates in --ca-dir without a key',
      parsed(absolutePath),
    )
    .option(
      '--ca-signer-arg <word>',
      'argument of the signer command; may be given several times',
      collect((word: string) => word),
    )
    .option(
      '--store <url>',
      'store that several brokers share, instead of a database in --state: etcd://[user@]host:port[,host:port…][/prefix]',
    )
    .option('--etcd-ca <file>', "CA certificates that verify etcd's certificate (default: those of the system)")
    .option('--etcd-cert <file>', 'client certificate for etcd')
    .option('--etcd-key <file>', 'key of the client certificate')
    .option('--etcd-password-file <file>', 'password of the user in --store')
    .addOption(
      durationOption(
        '--connection-age',
        'with several replicas: members reconnect after about this time, which balances them; 0s: never',
        0,
        { maxMs: MAX_CONNECTION_AGE_MS },
      ),
    )
    .addOption(
      durationOption('--drain', 'when stopping: disconnect members one by one within this time', 0, {
        maxMs: MAX_DRAIN_MS,
      }),
    )
    .addOption(
      durationOption(
        '--renewal-grace',
        'a member whose certificate has expired, because it was off, can still renew it for this time; 0s: never',
        DEFAULT_RENEWAL_GRACE_MS,
        { maxMs: MAX_RENEWAL_GRACE_MS },
      ),
    )
  addQuotaOptions(serve)
    .addOption(logLevelOption())
    .action(async (options: ServeOptions, command: Command) => {
      const advertise = options.advertise ?? []
      if (advertise.length === 0) {
        throw new UserError('--advertise: expected at least one host:port under which members reach this broker', {
          exitCode: 2,
        })
      }
      const { serveBrokerProcess } = await import('../../compose/broker/serve.ts')
      const { acceptEmpty, auditLog, auditLogSize, auditLogKeep } = options
      const approve = options.approve === true || options.approve === 'yes'
      const accepted = acceptEmpty === true ? new SystemClock().now() : acceptEmpty
      const more = accepted === undefined ? {} : { acceptEmptyAtMs: accepted }
      const audit = { log: auditLog, maxBytes: auditLogSize * MIB, keep: auditLogKeep }
      // An empty value in the environment means "not set", as for all settings. An empty flag is an error.
      if (auditLog === '' && command.getOptionValueSource('auditLog') !== 'env')
        throw new UserError(`--audit-log "": expected a file, "-" or "${AUDIT_OFF}"`, { exitCode: 2 })
      const store = storeOf(options)
      const audited = auditLog === AUDIT_OFF || auditLog === '' ? {} : { audit }
      const keys = authorityOf(options)
      const { adminListen = '', relay = [], relayHere: here, ...rest } = options
      const relayHere = here === true || here === 'yes'
      if (relay.length > MAX_RELAYS)
        throw new UserError(`--relay: ${relay.length} addresses: expected at most ${MAX_RELAYS}`, { exitCode: 2 })
      const admin = adminListen === '' ? {} : { adminListen }
      const onRelayHere = (addresses: readonly string[]): void => {
        for (const one of addresses) context.output.remark(`relay on this port: --relay ${one}\n`)
        if (store !== undefined && relay.length === 0)
          context.output.remark(
            'members do not learn of it: give each broker of this store the relays of all by --relay\n',
          )
      }
      await serveBrokerProcess(
        {
          ...rest,
          ...admin,
          relays: relay,
          relayHere,
          onRelayHere,
          approve,
          advertise,
          ...more,
          ...audited,
          ...keys,
          store,
        },
        signal,
      )
    })
  addBrokerDeployCommand(broker, context)
  addBrokerBackupCommands(broker, context)
  addBrokerStatusCommand(broker, context)
  addBrokerPublishedCommands(broker, context)
  addBrokerVerifyCommand(broker, context)
  addBrokerMigrateCommand(broker, context)
  addBrokerCaCommands(broker, context)
  addBrokerClustersetCommands(broker, context)
  addBrokerRelayCommands(broker, context)
}
