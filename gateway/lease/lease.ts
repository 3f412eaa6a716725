/** Who holds a lane's number, and hands it over. */
export { runLabelledGateway } from './labelled-gateway.ts'
