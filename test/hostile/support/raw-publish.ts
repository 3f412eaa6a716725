/** One Publish stream. It sends what the test gives it, and waits for an answer only where the test says so. */
import { type Client, type ClientDuplexStream, Metadata } from '@grpc/grpc-js'
import {
  BrokerService,
  type ClusterFacts,
  type MemberKey,
  type MemberRecord,
  type MemberStatus,
  PublishMessage,
  PublishReply,
} from '../../../protocol/gen/broker.ts'
import { eventually } from '../../support/eventually.ts'
import { RawRefusal, type Status, same, textOf } from './raw-channel.ts'

type Message = NonNullable<PublishMessage['message']>
const PATIENCE = { intervalMs: 2, deadlineMs: 15_000 }

export class RawPublish {
  readonly replies: PublishReply[] = []
  /** The status that ended the stream. */
  status: Status | undefined
  readonly call: ClientDuplexStream<Buffer, Buffer>
  sequence = 0

  constructor(channel: Client) {
    this.call = channel.makeBidiStreamRequest(BrokerService.publish.path, same, same, new Metadata())
    this.call.on('data', (bytes: Buffer) => this.replies.push(PublishReply.decode(bytes)))
    this.call.on('status', (status: Status) => (this.status = status))
    this.call.on('error', () => undefined)
  }

  /** Returns false if the stream has no room for more now. */
  send(message: PublishMessage['message']): boolean {
    return this.call.write(Buffer.from(PublishMessage.encode({ message }).finish()))
  }

  /** Declares a set that the broker cannot have, with no records in it, which opens the stream. Throws RawRefusal. */
  async open(): Promise<this> {
    this.send({
      $case: 'declare',
      value: { setHash: Buffer.alloc(32), count: 1, tellsStatus: true, takesQuota: false, givesHeld: false },
    })
    await this.has('sendDigest')
    this.send({ $case: 'digest', value: { entries: [], last: true } })
    await this.has('need')
    return this
  }

  /** Sends the facts without waiting for an answer, as sendPut() does. */
  sendFacts(facts: ClusterFacts): number {
    return this.#next((sequence) => ({ $case: 'facts', value: { sequence, facts } }))
  }

  sendPut(record: MemberRecord): number {
    return this.#next((sequence) => ({ $case: 'put', value: { sequence, record } }))
  }

  /** Returns `ok`, `field: reason`, or the status that ended the stream. */
  put(record: MemberRecord): Promise<string> {
    return this.#answer(this.sendPut(record))
  }

  /** Returns the same as put(). */
  remove(key: MemberKey): Promise<string> {
    return this.#answer(this.#next((sequence) => ({ $case: 'remove', value: { sequence, key } })))
  }

  /** Returns the same as put(). */
  facts(facts: ClusterFacts): Promise<string> {
    return this.#answer(this.sendFacts(facts))
  }

  /** Returns the same as put(). */
  report(status: MemberStatus): Promise<string> {
    return this.#answer(this.#next((sequence) => ({ $case: 'status', value: { sequence, status } })))
  }

  /** Waits for a reply of this kind. Throws RawRefusal if the stream ends before it. */
  async has(kind: NonNullable<PublishReply['message']>['$case']): Promise<void> {
    const came = (): boolean => this.replies.some(({ message }) => message?.$case === kind)
    await eventually(() => came() || this.status !== undefined, { ...PATIENCE, say: kind })
    if (!came() && this.status !== undefined) throw new RawRefusal(this.status)
  }

  acknowledged(): number {
    const acks = this.replies.flatMap(({ message }) => (message?.$case === 'ack' ? [message.value.sequence] : []))
    return acks.at(-1) ?? 0
  }

  /** Waits until all messages are acknowledged. */
  async settled(): Promise<void> {
    await eventually(() => this.acknowledged() === this.sequence, {
      ...PATIENCE,
      say: `acknowledgement of ${this.sequence} (status ${JSON.stringify(this.status)})`,
    })
  }

  /** The status that the stream ends with. */
  ended(deadlineMs = 10_000): Promise<Status> {
    return eventually(() => this.status, { say: 'a status of the publish stream', deadlineMs })
  }

  #next(message: (sequence: number) => Message): number {
    const sequence = (this.sequence += 1)
    this.send(message(sequence))
    return sequence
  }

  #answer(sequence: number): Promise<string> {
    const answered = (): string | false => {
      if (this.status !== undefined) return textOf(this.status)
      const messages = this.replies.map(({ message }) => message)
      const refused = messages.find((one) => one?.$case === 'refused' && one.value.sequence === sequence)
      if (refused?.$case === 'refused') return `${refused.value.field}: ${refused.value.message}`
      return messages.some((one) => one?.$case === 'ack' && one.value.sequence >= sequence) && 'ok'
    }
    return eventually(answered, { deadlineMs: 20_000, say: `an answer to ${sequence}` })
  }
}
