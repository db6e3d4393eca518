//! The requests that every USB device has: USB 2.0, 9.4.

use crate::device::{Device, Setup, Stall};

const GET_STATUS: u8 = 0;
const CLEAR_FEATURE: u8 = 1;
const SET_FEATURE: u8 = 3;
const GET_DESCRIPTOR: u8 = 6;
const GET_CONFIGURATION: u8 = 8;
const SET_CONFIGURATION: u8 = 9;
const GET_INTERFACE: u8 = 10;
const SET_INTERFACE: u8 = 11;

const DEVICE: u16 = 1;
const CONFIGURATION: u16 = 2;
const STRING: u16 = 3;

/// English as it is in the United States, the one language of our strings.
const LANGUAGES: [u8; 4] = [4, STRING as u8, 0x09, 0x04];

/// Answer a control request: a standard one here, all others by the device. `configuration`
/// is the host's choice. The reply is no longer than requested.
pub(crate) fn control(
    device: &mut dyn Device,
    configuration: &mut u8,
    setup: &Setup,
    data: &[u8],
) -> Result<Vec<u8>, Stall> {
    // Without data to send, a device can't report what it took: it has to be what was announced.
    if !setup.is_in() && data.len() != usize::from(setup.length) {
        return Err(Stall);
    }
    let mut answer = if setup.request_type & 0x60 == 0 {
        standard(device, configuration, setup)?
    } else {
        device.control(setup, data)?
    };
    answer.truncate(usize::from(setup.length));
    Ok(answer)
}

fn standard(
    device: &mut dyn Device,
    configuration: &mut u8,
    setup: &Setup,
) -> Result<Vec<u8>, Stall> {
    match setup.request {
        // All are powered by themselves, and no endpoint is ever halted.
        GET_STATUS => Ok(vec![u8::from(setup.request_type & 0x1f == 0), 0]),
        CLEAR_FEATURE | SET_FEATURE => Ok(Vec::new()),
        GET_DESCRIPTOR => descriptor(device, setup.value),
        GET_CONFIGURATION => Ok(vec![*configuration]),
        SET_CONFIGURATION if setup.value <= 1 => {
            *configuration = setup.value as u8;
            Ok(Vec::new())
        }
        GET_INTERFACE => Ok(vec![device.alternate(setup.index)?]),
        SET_INTERFACE => {
            device.set_alternate(setup.index, setup.value)?;
            Ok(Vec::new())
        }
        _ => Err(Stall),
    }
}

fn descriptor(device: &dyn Device, value: u16) -> Result<Vec<u8>, Stall> {
    let descriptors = device.descriptors();
    match (value >> 8, value & 0xff) {
        (DEVICE, 0) => Ok(descriptors.device.to_vec()),
        (CONFIGURATION, 0) => Ok(descriptors.configuration.clone()),
        (STRING, 0) => Ok(LANGUAGES.to_vec()),
        (STRING, number) => {
            let string = descriptors.strings.get(usize::from(number) - 1);
            Ok(encoded(string.ok_or(Stall)?))
        }
        _ => Err(Stall),
    }
}

/// A string as a descriptor. Ours are far below the 126 characters that fit.
fn encoded(string: &str) -> Vec<u8> {
    let mut bytes = vec![0, STRING as u8];
    for unit in string.encode_utf16().take(126) {
        bytes.extend_from_slice(&unit.to_le_bytes());
    }
    bytes[0] = bytes.len() as u8;
    bytes
}
