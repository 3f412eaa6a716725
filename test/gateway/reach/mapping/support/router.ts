/** A router that maps UDP ports, written from RFC 6886 and RFC 6887, without the gateway's own code. */
export interface RouterInit {
  readonly speaks: readonly ('pcp' | 'natPmp')[]
  /** Its address outside. */
  readonly address: string
  /** The port that it gives. Undefined: it refuses. Default: the one that is wanted. */
  readonly gives?: (inside: number, wanted: number) => number | undefined
  readonly lifetimeSeconds?: number
  readonly epochSeconds?: () => number
  /** A mapping begins, or ends. */
  readonly onChange?: (mapping: RouterMapping, isThere: boolean) => void
}

export interface RouterMapping {
  readonly client: string
  readonly inside: number
  readonly outside: number
  /** PCP alone, in hexadecimal digits. */
  readonly nonce: string
}

export class Router {
  readonly #init: RouterInit
  /** By client and port inside. */
  readonly mappings = new Map<string, RouterMapping>()

  constructor(init: RouterInit) {
    this.#init = init
  }

  /** Undefined: it does not answer. */
  answer(question: Buffer, client: string): Buffer | undefined {
    const [version] = question
    const isKnown = this.#init.speaks.includes(version === 2 ? 'pcp' : 'natPmp')
    if (!isKnown && this.#init.speaks.length === 0) return undefined
    if (version === 2) return isKnown ? this.#pcp(question, client) : this.#natPmpHead(question[1] ?? 0, 1, 8)
    if (version === 0 && isKnown) return this.#natPmp(question, client)
    const refusal = Buffer.alloc(24)
    refusal.set([2, 0x80 | (question[1] ?? 0), 0, 1])
    return refusal
  }

  #pcp(question: Buffer, client: string): Buffer {
    const answer = Buffer.from(question)
    answer[1] = 0x81
    answer.fill(0, 8, 24)
    answer.writeUInt32BE(this.#epoch(), 8)
    const nonce = question.subarray(24, 36).toString('hex')
    const [inside, wanted] = [question.readUInt16BE(40), question.readUInt16BE(42)]
    const stated = [...question.subarray(20, 24)].join('.')
    const known = this.mappings.get(`${client} ${inside}`)
    const fail = (result: number): Buffer => {
      answer[3] = result
      return answer
    }
    if (stated !== client) return fail(12)
    if (question[1] !== 1 || question.length !== 60) return fail(3)
    if (known !== undefined && known.nonce !== nonce) return fail(2)
    if (question.readUInt32BE(4) === 0) {
      this.#remove(client, inside)
      return answer
    }
    const outside = known?.outside ?? this.#gives(inside, wanted)
    if (outside === undefined) return fail(8)
    this.#add({ client, inside, outside, nonce })
    answer.writeUInt32BE(this.#init.lifetimeSeconds ?? question.readUInt32BE(4), 4)
    answer.writeUInt16BE(outside, 42)
    answer.set([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, ...this.#init.address.split('.').map(Number)], 44)
    return answer
  }

  #natPmp(question: Buffer, client: string): Buffer {
    const opcode = question[1] ?? 0
    if (opcode === 0) {
      const answer = this.#natPmpHead(0, 0, 12)
      answer.set(this.#init.address.split('.').map(Number), 8)
      return answer
    }
    if (opcode !== 1 || question.length !== 12) return this.#natPmpHead(opcode, 5, 8)
    const [inside, wanted, lifetime] = [question.readUInt16BE(4), question.readUInt16BE(6), question.readUInt32BE(8)]
    const outside = this.mappings.get(`${client} ${inside}`)?.outside ?? this.#gives(inside, wanted)
    const answer = this.#natPmpHead(1, lifetime > 0 && outside === undefined ? 4 : 0, 16)
    answer.writeUInt16BE(inside, 8)
    if (lifetime === 0) {
      this.#remove(client, inside)
      return answer
    }
    if (outside === undefined) return answer
    this.#add({ client, inside, outside, nonce: '' })
    answer.writeUInt16BE(outside, 10)
    answer.writeUInt32BE(this.#init.lifetimeSeconds ?? lifetime, 12)
    return answer
  }

  #natPmpHead(opcode: number, result: number, length: number): Buffer {
    const answer = Buffer.alloc(length)
    answer[1] = 128 + opcode
    answer.writeUInt16BE(result, 2)
    answer.writeUInt32BE(this.#epoch(), 4)
    return answer
  }

  #epoch(): number {
    return this.#init.epochSeconds?.() ?? 1000
  }

  #gives(inside: number, wanted: number): number | undefined {
    return this.#init.gives === undefined ? wanted : this.#init.gives(inside, wanted)
  }

  #add(mapping: RouterMapping): void {
    const name = `${mapping.client} ${mapping.inside}`
    if (!this.mappings.has(name)) this.#init.onChange?.(mapping, true)
    this.mappings.set(name, mapping)
  }

  #remove(client: string, inside: number): void {
    const name = `${client} ${inside}`
    const mapping = this.mappings.get(name)
    if (mapping !== undefined) this.#init.onChange?.(mapping, false)
    this.mappings.delete(name)
  }
}
