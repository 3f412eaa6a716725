/** Watch streams, message by message or as the records that the broker hands out. */
import { type Client, type ClientReadableStream, Metadata } from '@grpc/grpc-js'
import { BrokerService, RecordEvent, type StoredRecord, WatchMessage } from '../../../protocol/gen/broker.ts'
import { RawRefusal, type Status, same } from './raw-channel.ts'

export class RawWatch {
  /** The status that ended the stream. */
  status: Status | undefined
  readonly call: ClientReadableStream<Buffer>

  /** `request` is the request as bytes. */
  constructor(channel: Client, onMessage: (message: WatchMessage) => void, request: Uint8Array = new Uint8Array()) {
    const asked = Buffer.from(request)
    this.call = channel.makeServerStreamRequest(BrokerService.watch.path, same, same, asked, new Metadata())
    this.call.on('data', (bytes: Buffer) => onMessage(WatchMessage.decode(bytes)))
    this.call.on('status', (status: Status) => (this.status = status))
    this.call.on('error', () => undefined)
  }
}

/** All records up to the first `synced`. Throws RawRefusal if the stream ends before it. */
export function recordsOf(channel: Client): Promise<StoredRecord[]> {
  const found: StoredRecord[] = []
  return new Promise((resolve, reject) => {
    const watch = new RawWatch(channel, ({ message }) => {
      if (message?.$case === 'batch') found.push(...message.value.events.flatMap(putOf))
      if (message?.$case !== 'synced') return
      resolve(found)
      setImmediate(() => watch.call.cancel())
    })
    watch.call.on('status', (status: Status) => reject(new RawRefusal(status)))
  })
}

function putOf(bytes: Uint8Array): StoredRecord[] {
  const { event } = RecordEvent.decode(bytes)
  return event?.$case === 'put' ? [event.value] : []
}
