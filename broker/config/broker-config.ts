/** Configuration of the broker, with its defaults. */
import {
  DEFAULT_CLUSTERSET_IP_RANGE,
  DEFAULT_GLOBAL_RANGE,
  DEFAULT_MEMBER_QUOTA,
  LANE_ADDRESS_RANGE,
  type MemberQuota,
  QUOTA_BOUNDS,
  QUOTA_FIELDS,
  isDnsLabel,
} from '../../model/model.ts'
import type { AccessDefault } from '../../model/access/access.ts'
import { isIPv4 } from 'node:net'
import { isAbsolute } from 'node:path'
import {
  DEFAULT_MAX_MEMBERS,
  MOST_MEMBERS,
  addressBits,
  overlaps,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { DEFAULT_BROKER_PORT, parseBrokerAddress } from '../../protocol/protocol.ts'
import { DEFAULT_RENEWAL_GRACE_MS, MAX_RENEWAL_GRACE_MS, MEMBER_VALIDITY_MS } from '../../protocol/identity/identity.ts'
import { UserError, formatDuration } from '../../runtime/runtime.ts'

export interface BrokerConfig {
  /** Directory for the database, the CA and the keys. Created with mode 0700. */
  readonly stateDir: string
  /** Name of the clusterset: one DNS label. Part of every certificate, so fixed at the first start. */
  readonly clusterset: string
  /** host:port to listen on; '[::]:7443' for IPv6. */
  readonly listen: string
  /**
   * host:port of the loopback for the admin service, beside its Unix socket: for the port-forward of a pod. Every process
   * that can use this loopback is an operator. Absent: none.
   */
  readonly adminListen?: string
  /** host:port at which members reach the broker. Used in tokens, watches and the server certificate. */
  readonly advertise: readonly string[]
  /** Clusters with overlapping pod CIDRs get blocks of this range. Fixed at the first start. */
  readonly globalRange: string
  /** Exported services get addresses of this range. Fixed at the first start. */
  readonly clustersetIpRange: string
  /** Guarded namespaces (`default`, kube-*, openshift*, Sealane's own) from which services may still be exported. */
  readonly allowedNamespaces: readonly string[]
  /** Lifetime of member certificates. Members renew after two thirds of it. */
  readonly memberCertificateMs: number
  /** How long after its end a member's certificate can still be renewed, for members that were off. 0: not at all. */
  readonly renewalGraceMs: number
  /** How often the broker reports to members which of them are not connected to it. */
  readonly contactMs: number
  /** Calls arrive with the callers' own source addresses: no proxy in front of the broker replaces them. */
  readonly sourcesKept: boolean
  /** Every cluster that joins waits until an operator accepts it. False: only clusters whose tokens require it wait. */
  readonly approve: boolean
  readonly limits: BrokerLimits
  /** Whether services without a policy are offered to all members. Absent: as the store has it, at first `allow`. */
  readonly defaultAccess?: AccessDefault
  /** Addresses of relays on port 443, which all members get (model/lanes/relay-address.ts). Default: none. */
  readonly relays?: readonly string[]
  /** `relays` are the addresses of the relay that this broker serves on its own port. Default: they are not. */
  readonly relaysHere?: boolean
  /** An object in the broker's cluster may set the topology (BrokerDeps.followTopology). Default: commands alone do. */
  readonly followsTopology?: boolean
  /** ServerLimits.connectionAgeMs and drainMs, for one of several replicas. Default 0. */
  readonly connectionAgeMs?: number
  readonly drainMs?: number
  /**
   * Accepts a state whose mark is not later than this time, even if the broker has assigned more than the state
   * contains.
   */
  readonly acceptEmptyAtMs?: number
  /** Absent: no audit log. */
  readonly audit?: AuditConfig
  /** Absent: the database in the state directory. */
  readonly store?: EtcdStoreConfig
  /** A directory, such as a mounted Secret, with certificates and keys of authorities that an operator provides. */
  readonly authorityDir?: string
  /** Signs for the certificates in authorityDir that have no key there. */
  readonly signer?: SignerConfig
}

export interface SignerConfig {
  /** Absolute path. */
  readonly command: string
  readonly args: readonly string[]
}

export interface AuditConfig {
  /** A file, or AUDIT_STDOUT. */
  readonly log: string
  /** A file that would exceed this size is rotated. 0: never. */
  readonly maxBytes: number
  /** Number of rotated files to keep. */
  readonly keep: number
}

/** AuditConfig.log for standard output. */
export const AUDIT_STDOUT = '-'
const MAX_AUDIT_KEEP = 1000

/** Limits on what members can make the broker store. */
export interface BrokerLimits {
  readonly membersPerClusterset: number
  /** Quota of each member that has none of its own. `sealane cluster quota` sets one. */
  readonly quota: MemberQuota
}

export const DEFAULT_LIMITS: BrokerLimits = {
  membersPerClusterset: DEFAULT_MAX_MEMBERS,
  quota: DEFAULT_MEMBER_QUOTA,
}

export const DEFAULT_BROKER_CONFIG: Omit<BrokerConfig, 'stateDir' | 'advertise'> = {
  clusterset: 'default',
  listen: `[::]:${DEFAULT_BROKER_PORT}`,
  globalRange: DEFAULT_GLOBAL_RANGE,
  clustersetIpRange: DEFAULT_CLUSTERSET_IP_RANGE,
  allowedNamespaces: [],
  memberCertificateMs: MEMBER_VALIDITY_MS,
  renewalGraceMs: DEFAULT_RENEWAL_GRACE_MS,
  contactMs: 15_000,
  sourcesKept: true,
  approve: false,
  limits: DEFAULT_LIMITS,
}

/** Join tokens are valid for 15 minutes and one use. */
export const DEFAULT_TOKEN_TTL_MS = 15 * 60_000
export const DEFAULT_TOKEN_USES = 1

/** Contains names of files, never their contents. */
export interface EtcdStoreConfig {
  /** etcd://[user@]host:port[,host:port…][/prefix] */
  readonly url: string
  /** Authorities that etcd's certificate must come from, PEM. Default: those that the system trusts. */
  readonly caFile?: string
  /** Client certificate and its key, PEM. Both or neither. */
  readonly certificateFile?: string
  readonly keyFile?: string
  /** File with the password of the user in the URL. */
  readonly passwordFile?: string
}

export class BrokerConfigError extends UserError {
  readonly field: string
  constructor(field: string, value: string, expected: string) {
    super(`${field} ${JSON.stringify(value)}: expected ${expected}`)
    this.name = 'BrokerConfigError'
    this.field = field
  }
}

/** Parses `host:port` or `[IPv6]:port`. Port 0 takes a free port. Throws BrokerConfigError. */
export function parseListen(text: string, field = 'listen'): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:/[\]]+)):(\d{1,5})$/.exec(text)
  const port = Number(match?.[3])
  if (match === null || port > 65_535) {
    throw new BrokerConfigError(field, text, `address:port such as 0.0.0.0:${DEFAULT_BROKER_PORT}`)
  }
  return { host: match[1] ?? match[2] ?? '', port }
}

/** Throws BrokerConfigError also for an address that others than this machine can reach. */
export function parseAdminListen(text: string): { readonly host: string; readonly port: number } {
  const parsed = parseListen(text, 'adminListen')
  const { host } = parsed
  if (host === '::1' || (isIPv4(host) && host.startsWith('127.'))) return parsed
  throw new BrokerConfigError('adminListen', text, 'an address of the loopback such as 127.0.0.1:7444')
}

/**
 * Throws BrokerConfigError, BrokerAddressError or InvalidAddressError for the first invalid field. Returns the config.
 */
export function checkBrokerConfig(config: BrokerConfig): BrokerConfig {
  if (!isDnsLabel(config.clusterset)) {
    throw new BrokerConfigError('clusterset', config.clusterset, 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -')
  }
  parseListen(config.listen)
  if (config.adminListen !== undefined) parseAdminListen(config.adminListen)
  if (config.advertise.length === 0) throw new BrokerConfigError('advertise', '', 'at least one host:port')
  for (const [i, one] of config.advertise.entries()) parseBrokerAddress(one, `advertise[${i}]`)
  checkRanges(config)
  checkMembers(config.limits.membersPerClusterset)
  checkGrace(config.renewalGraceMs)
  checkQuotas(config.limits.quota)
  if (config.audit !== undefined) checkAudit(config.audit)
  checkAuthority(config)
  return config
}

function checkAudit({ log, maxBytes, keep }: AuditConfig): void {
  if (log === '') throw new BrokerConfigError('audit.log', log, `a file, or ${AUDIT_STDOUT} for standard output`)
  if (!Number.isInteger(maxBytes) || maxBytes < 0)
    throw new BrokerConfigError('audit.maxBytes', String(maxBytes), 'a number of bytes, or 0')
  if (!Number.isInteger(keep) || keep < 1 || keep > MAX_AUDIT_KEEP)
    throw new BrokerConfigError('audit.keep', String(keep), `1 to ${MAX_AUDIT_KEEP}`)
}

function checkMembers(most: number): void {
  if (Number.isInteger(most) && most >= 1 && most <= MOST_MEMBERS) return
  throw new BrokerConfigError('limits.membersPerClusterset', String(most), `1 to ${MOST_MEMBERS}`)
}

function checkGrace(ms: number): void {
  if (Number.isInteger(ms) && ms >= 0 && ms <= MAX_RENEWAL_GRACE_MS) return
  const most = formatDuration(MAX_RENEWAL_GRACE_MS)
  throw new BrokerConfigError('renewalGraceMs', formatDuration(ms), `0s to ${most}`)
}

function checkQuotas(quota: MemberQuota): void {
  for (const field of QUOTA_FIELDS) {
    const { min, max } = QUOTA_BOUNDS[field]
    const value = quota[field]
    if (!Number.isInteger(value) || value < min || value > max)
      throw new BrokerConfigError(`limits.quota.${field}`, String(value), `${min} to ${max}`)
  }
}

function checkAuthority({ authorityDir, signer }: BrokerConfig): void {
  if (signer === undefined) return
  if (!isAbsolute(signer.command))
    throw new BrokerConfigError('signer.command', signer.command, 'the absolute path of a command')
  if (authorityDir === undefined)
    throw new BrokerConfigError('authorityDir', '', 'a directory with the certificate that the signer signs for')
}

/** Throws BrokerConfigError or InvalidAddressError. */
export function checkRanges(config: Pick<BrokerConfig, 'globalRange' | 'clustersetIpRange'>): void {
  const global = parsePrefix(config.globalRange, 'globalRange')
  const services = parsePrefix(config.clustersetIpRange, 'clustersetIpRange')
  const lanes = parsePrefix(LANE_ADDRESS_RANGE)
  for (const [field, range] of [['globalRange', global] as const, ['clustersetIpRange', services] as const]) {
    if (range.family !== 4) throw new BrokerConfigError(field, config[field], 'an IPv4 range')
    if (range.length > addressBits(4) - 2) throw new BrokerConfigError(field, config[field], 'at least 4 addresses')
    if (overlaps(range, lanes))
      throw new BrokerConfigError(field, config[field], `no overlap with ${LANE_ADDRESS_RANGE}`)
  }
  if (overlaps(global, services)) {
    throw new BrokerConfigError(
      'clustersetIpRange',
      config.clustersetIpRange,
      `no overlap with globalRange ${config.globalRange}`,
    )
  }
}
