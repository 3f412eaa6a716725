/**
 * One clusterset at the broker's port: its authorities, its BrokerApi, and grpc-js servers that know no other. Several
 * of them have nothing in common but the port: which one a connection gets is said by the name that it asks for
 * (identity/certificates.ts), and what it may do there by what it shows to that one alone.
 */
import { type SecureContext, type TLSSocket, createSecureContext } from 'node:tls'
import type { BrokerApi } from '../../broker-api.ts'
import { keyToPem } from '../../identity/keys.ts'
import { certificateToPem, fingerprint } from '../../identity/pem.ts'
import { serverNameOf } from '../../identity/server-name.ts'
import type { BrokerServiceDeps, FailedCall } from '../broker-service.ts'
import type { Host } from '../connections.ts'
import { type PeerTrust, peerTrust } from '../peer-check.ts'
import { type GrpcPart, type PartLimits, membersPart, strangersPart } from './grpc-part.ts'
import type { ServerTls } from './server-tls.ts'

export interface HostedInit {
  /** Of the clusterset; '' for the one that is served to whoever asks for none. */
  readonly name: string
  readonly api: BrokerApi
  readonly tls: ServerTls
  /** Called for each call that is refused, or fails. */
  readonly onFailed?: (call: FailedCall) => void
}

/** What the port does for all of them. */
export type HostingDeps = Omit<BrokerServiceDeps, 'api' | 'stopping' | 'onFailed'>

export interface HostingLimits extends PartLimits {
  readonly graceMs: number
}

export class Hosted implements Host {
  readonly name: string
  readonly #init: HostedInit
  readonly #deps: HostingDeps
  readonly #limits: HostingLimits
  readonly #stopping = new AbortController()
  readonly #members: GrpcPart
  readonly #strangers: GrpcPart
  readonly #sockets = new Set<TLSSocket>()
  #trust: PeerTrust
  #context: SecureContext
  #names: ReadonlySet<string>
  #onEmpty: (() => void) | undefined
  #closed: Promise<void> | undefined

  constructor(init: HostedInit, deps: HostingDeps, limits: HostingLimits) {
    this.name = init.name
    this.#init = init
    this.#deps = deps
    this.#limits = limits
    const { api, onFailed = () => undefined } = init
    const service = { ...deps, api, onFailed, stopping: this.#stopping.signal }
    this.#members = membersPart(service, limits)
    this.#strangers = strangersPart(service, limits)
    this.#trust = peerTrust(init.tls)
    this.#context = createSecureContext(secureOptions(init.tls))
    this.#names = namesOf(init.tls)
  }

  get trust(): PeerTrust {
    return this.#trust
  }
  /** What a connection that asks for this clusterset is shown, and checked against. */
  get context(): SecureContext {
    return this.#context
  }

  readonly isWelcome: Host['isWelcome'] = (peer) => this.#init.api.isWelcome?.(peer) ?? true

  /** Whether who asks for this name trusts an authority that is, or was, one of this clusterset. */
  isCalled(serverName: string): boolean {
    return this.#names.has(serverName)
  }

  /** For new connections; open ones stay as they are. */
  setTls(tls: ServerTls): void {
    this.#context = createSecureContext(secureOptions(tls))
    this.#trust = peerTrust(tls)
    this.#names = namesOf(tls)
  }

  take(socket: TLSSocket, as: 'member' | 'stranger'): void {
    if (this.#stopping.signal.aborted) return void socket.destroy()
    this.#sockets.add(socket)
    socket.once('close', () => {
      this.#sockets.delete(socket)
      if (this.#sockets.size === 0) this.#onEmpty?.()
    })
    const part = as === 'member' ? this.#members : this.#strangers
    part.injector.injectConnection(socket)
  }

  /** Ends every stream with "the broker is stopping", waits `graceMs` for calls, and then for nobody. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    const { clock } = this.#deps
    const { graceMs } = this.#limits
    const parts = [this.#members, this.#strangers]
    this.#stopping.abort()
    for (const { injector } of parts) injector.drain(graceMs)
    const cancel = clock.setTimer(graceMs, () => this.#sockets.forEach((socket) => socket.destroy()))
    if (this.#sockets.size > 0) await new Promise<void>((resolve) => (this.#onEmpty = resolve))
    cancel()
    for (const { injector, grpc } of parts) {
      injector.destroy()
      grpc.forceShutdown()
    }
  }
}

/** Of the context that the port shows a certificate from. */
export function secureOptions(tls: ServerTls): { readonly cert: string; readonly key: string; readonly ca: string[] } {
  const ca = tls.ca.map(certificateToPem)
  return { cert: certificateToPem(tls.certificate) + (ca[0] ?? ''), key: keyToPem(tls.key), ca }
}

/** Also of authorities that are removed: who was away for long is to hear that, and not that it calls a stranger. */
function namesOf({ ca, removed = [] }: ServerTls): ReadonlySet<string> {
  return new Set([...ca, ...removed].map((der) => serverNameOf(fingerprint(der))))
}
