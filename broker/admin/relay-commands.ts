/** The commands of operators on the relays on port 443 that the members of a clusterset get. */
import { MAX_RELAYS, RELAY_ADDRESS_FORM, readRelayAddress, relayConflict } from '../../model/lanes/lanes.ts'
import { fitText, printable } from '../../model/model.ts'
import type { RelayAdded, RelayFlag, RelayRemoved, StatedRelay } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import { auditedCommand } from '../audit/audit.ts'
import { SETTINGS_KEY, type SettingsRow, relayFlag, shadowedRelays, statedRelays } from '../store/store.ts'
import { type CommandInit, settingsOf } from './command-state.ts'

export class RelayCommands {
  readonly #init: CommandInit

  constructor(init: CommandInit) {
    this.#init = init
  }

  /** In the order in which members get them, and then those that they do not get. */
  async list(): Promise<readonly StatedRelay[]> {
    const { state } = this.#init
    await state.log.refresh()
    const settings = settingsOf(state)
    const relays: readonly StatedRelay[] = [
      ...(statedRelays(settings) ?? []).map((address) => statedRelay(settings, address)),
      ...shadowedRelays(settings).map(({ address, why }) => ({ ...statedRelay(settings, address), notStated: why })),
    ]
    return relays.map((relay) => {
      const pin = readRelayAddress(relay.address)?.pin
      const sameKeyAs = relays.flatMap((one) =>
        one !== relay && pin !== undefined && readRelayAddress(one.address)?.pin === pin ? [one.name] : [],
      )
      return { ...relay, ...(sameKeyAs.length === 0 ? {} : { sameKeyAs }) }
    })
  }

  /**
   * Throws RefusedError (InvalidValue), which names the field, and another relay of this name with its address, or
   * (RelayNotSupported) while a replica would not give it to its members.
   */
  async add({ address: text }: { readonly address: string }): Promise<RelayAdded> {
    const { state, clock, who } = this.#init
    const name = readRelayAddress(text)?.host
    if (name === undefined) throw invalid('address', `address ${shown(text)}: expected ${RELAY_ADDRESS_FORM}`)
    const details = { address: text }
    const careless = await this.#careless()
    const { settings, changed } = await auditedCommand(
      { log: state.log, clock, who },
      { act: 'relay.add', subject: name, details },
      (tx) => {
        if (careless.length > 0) throw notSupported(careless)
        const before = tx.get('settings', SETTINGS_KEY) ?? settingsOf(state)
        const { relays = [], addedRelays = [] } = before
        if (addedRelays.some(({ address }) => address === text)) return { settings: before, changed: false }
        checkAddition(text, relays, addedRelays)
        const after = { ...before, addedRelays: [...addedRelays, { address: text, addedAtMs: clock.now() }] }
        tx.put('settings', SETTINGS_KEY, after)
        return { settings: after, changed: true }
      },
      (done) => ({ details: { ...details, repeated: !done.changed } }),
    )
    return { ...statedRelay(settings, text), changed }
  }

  /** Throws RefusedError (InvalidValue) for a text that is neither, and for a relay that a flag alone states. */
  async remove({ relay: text }: { readonly relay: string }): Promise<RelayRemoved> {
    const { state, clock, who } = this.#init
    const name = nameOf(text)
    const { changed, flag } = await auditedCommand(
      { log: state.log, clock, who },
      { act: 'relay.remove', subject: name },
      (tx): { readonly changed: boolean; readonly flag?: RelayFlag } => {
        const settings = tx.get('settings', SETTINGS_KEY) ?? settingsOf(state)
        const { relays = [], addedRelays = [] } = settings
        const isIt = (address: string): boolean => (isAddress(text) ? address === text : hostOf(address) === name)
        const left = addedRelays.filter(({ address }) => !isIt(address))
        const flagged = relays.find(isIt)
        if (left.length === addedRelays.length) {
          if (flagged === undefined) return { changed: false }
          const mend = 'start the broker without this flag'
          const said = settings.relaysHere === true ? relayFlag(settings) : `--relay ${flagged}`
          throw invalid('relay', `relay ${name}: a flag of the broker states it (${said}): ${mend}`)
        }
        // An empty list is kept: without a word on relays, a member keeps those that it has heard of.
        tx.put('settings', SETTINGS_KEY, { ...settings, addedRelays: left })
        return { changed: true, ...(flagged === undefined ? {} : { flag: relayFlag(settings) }) }
      },
      (done) => ({ details: { repeated: !done.changed } }),
    )
    return { name, changed, stays: flag !== undefined, ...(flag === undefined ? {} : { flag }) }
  }

  /** Replicas whose members would not learn of it. One that starts later is not noticed. */
  async #careless(): Promise<readonly string[]> {
    const { state, signal } = this.#init
    if (state.etcd === undefined) return []
    const { replicasWithout } = await import('./etcd-status.ts')
    return replicasWithout('keepsAddedRelays', state.etcd, signal)
  }
}

function notSupported(replicas: readonly string[]): RefusedError {
  const why = 'while brokers that do not state that they keep added relays serve this store'
  return new RefusedError('RelayNotSupported', 'address', `address: expected none ${why}: ${replicas.join(', ')}`)
}

function checkAddition(text: string, flagged: readonly string[], added: SettingsRow['addedRelays'] = []): void {
  const addresses = added.map(({ address }) => address)
  const other =
    relayConflict([text], addresses)?.added ??
    // A flag with the same address may go later, and then the relay stays.
    relayConflict([text], flagged)?.added
  if (other !== undefined)
    throw invalid('address', `address ${shown(text)}: expected another name than that of ${shown(other)}`)
  const all = new Set([...flagged, ...addresses, text])
  if (all.size > MAX_RELAYS)
    throw invalid('address', `address ${shown(text)}: expected at most ${MAX_RELAYS} relays: remove one first`)
}

function statedRelay(settings: SettingsRow, address: string): StatedRelay {
  const { relays = [], addedRelays = [] } = settings
  const addedAtMs = addedRelays.find((one) => one.address === address)?.addedAtMs
  return {
    name: hostOf(address) ?? address,
    address,
    isFlagged: relays.includes(address),
    ...(relays.includes(address) ? { flag: relayFlag(settings) } : {}),
    ...(addedAtMs === undefined ? {} : { addedAtMs }),
  }
}

function hostOf(address: string): string | undefined {
  return readRelayAddress(address)?.host
}

function isAddress(text: string): boolean {
  return text.startsWith('wss://')
}

/** The host of an address, or the text itself if it is one. */
function nameOf(text: string): string {
  const name = hostOf(isAddress(text) || /[/#?@]/.test(text) ? text : `wss://${text}/`)
  if (name !== undefined) return name
  const expected = 'host[:port] as "sealane broker relay list" shows it, or its address'
  throw invalid('relay', `relay ${shown(text)}: expected ${expected}`)
}

function invalid(field: string, text: string): RefusedError {
  return new RefusedError('InvalidValue', field, text)
}

function shown(text: string): string {
  return JSON.stringify(fitText(printable(text), 200))
}
