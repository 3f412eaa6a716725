/** Statements and words that the chains of both directions share. Pure. */
import type { NftBaseChain, NftStatement } from '../../kernel/nft/nft.ts'
import { COPIED_BYTES } from '../../kernel/nfnetlink/nfnetlink.ts'
import { NFLOG_GROUP, NFT_TABLE_NODE } from '../../model/model.ts'
import { ACCESS_DROP_REASONS, type AccessDropReason, nodeDropCounter } from '../world/world.ts'

const TABLE = NFT_TABLE_NODE

/** How a packet is refused. `sampled`: samples are logged to NFLOG_GROUP. */
export function droppedIn({ sampled }: { readonly sampled: boolean }): (reason: AccessDropReason) => string {
  return (reason) => `counter name ${nodeDropCounter(reason)} ${sampled ? `goto ${sampleChain(reason)}` : 'drop'}`
}

/**
 * Samples a second of one family. The limit comes before the log, so a flood costs one lookup more for each packet. A
 * packet beyond the limit is dropped there.
 */
const SAMPLES = 'limit rate over 5/second drop'
const CHAIN_LIMIT = 'limit-samples'

export function sampleChains(): NftStatement[] {
  const log = (reason: AccessDropReason): string =>
    `log prefix "${reason}" group ${NFLOG_GROUP} snaplen ${COPIED_BYTES}`
  return [
    ...chain(CHAIN_LIMIT, [SAMPLES]),
    ...ACCESS_DROP_REASONS.flatMap((reason) =>
      chain(sampleChain(reason), [`jump ${CHAIN_LIMIT}`, log(reason), 'drop']),
    ),
  ]
}

/** The statements of samples, as a table for a check whether the kernel has them. */
export function sampleProbe(): NftStatement[] {
  return [
    { verb: 'add-table', table: `${TABLE}_samples` },
    ...sampleChains().map((one) => ({ ...one, table: `${TABLE}_samples` })),
  ]
}

function sampleChain(reason: AccessDropReason): string {
  return `refused-${reason}`
}

/**
 * Rules for packets of a caller, after those for answers: the first packet of a connection is looked up in the chain
 * `first`, and later ones of an open one have the verdict `passes`. Connection tracking knows only connections whose
 * first packet was let through. A second SYN counts as a first packet, because it may open the connection once more. Flows
 * of other protocols have no end that could be waited for, so they are always looked up.
 */
export function keptRules(first: string, passes: string): string[] {
  return [`tcp flags & (syn | ack) == syn goto ${first}`, `meta l4proto tcp ct state established ${passes}`]
}

export function icmpName(family: 4 | 6): string {
  return family === 4 ? 'icmp' : 'ipv6-icmp'
}

export function map(name: string, type: Extract<NftStatement, { verb: 'add-map' }>['type']): NftStatement {
  return { verb: 'add-map', table: TABLE, map: name, type }
}

const MOST_NAMES = 3
const MAX_NAMES_LENGTH = 100

/**
 * The first names, for the comment of a chain. nft limits the bytes of a comment, and refuses some characters together
 * with the whole table. An object that no schema has checked may have any text as a name.
 */
export function namesComment(names: readonly string[], others: readonly string[] = []): string {
  const shown = names.slice(0, MOST_NAMES).map((name) => (name === '' ? '?' : name))
  const first = [...shown, ...others].join(' ').slice(0, MAX_NAMES_LENGTH)
  const text = first.replaceAll(/[^ !#-[\]-~]/g, '?')
  return names.length > MOST_NAMES ? `${text} and ${names.length - MOST_NAMES} more` : text
}

type Rule = string | { readonly rule: string; readonly comment: string }

export function chain(name: string, rules: readonly Rule[], base?: NftBaseChain): NftStatement[] {
  return [
    { verb: 'add-chain', table: TABLE, chain: name, ...(base === undefined ? {} : { base }) },
    ...rules.map((rule): NftStatement => ({
      verb: 'add-rule',
      table: TABLE,
      chain: name,
      ...(typeof rule === 'string' ? { rule } : rule),
    })),
  ]
}
